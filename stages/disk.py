"""A full disk, told from all other failures. Libraries report it in words of their own, so the disk is asked too."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from stages.errors import TryAgain

FULL_BYTES = 1 << 20


def explained(error: Exception, folder: Path) -> Exception:
    """`error` itself, or what a user can do about it if the disk that holds `folder` is full."""
    if isinstance(error, TryAgain) or not (says_full(error) or free_bytes(folder) < FULL_BYTES):
        return error
    return TryAgain(
        f"the disk that holds {folder.resolve()} is full; free some space and run the same command again. "
        "What was finished is intact"
    )


def says_full(error: BaseException) -> bool:
    """Whether `error`, or something that it came from, is the system's word for a full disk or quota."""
    return any(isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT) for cause in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and everything that it came from, the failures of other ranks in torch's CheckpointException included."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        failures = getattr(current, "failures", None)
        if isinstance(failures, dict):
            pending.extend(failure[0] for failure in failures.values())
        pending.extend([current.__cause__, current.__context__])


def free_bytes(folder: Path) -> int:
    """Bytes that this user can still write on the disk of `folder`."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
