"""A full disk, told from all other failures. Libraries report it in words of their own, so the disk itself is asked."""

import errno
import os
from pathlib import Path

from stages.errors import TryAgain

FULL_BYTES = 1 << 20


def explained(error: Exception, folder: Path) -> Exception:
    """`error` itself, or what a user can do about it if the disk that holds `folder` is full."""
    says_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, TryAgain) or not (says_full or free_bytes(folder) < FULL_BYTES):
        return error
    return TryAgain(
        f"the disk that holds {folder.resolve()} is full; free some space and run the same command again. "
        "What was finished is intact"
    )


def free_bytes(folder: Path) -> int:
    """Bytes that this user can still write on the disk of `folder`."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
