"""The file that a command's --out names: refused before the work if it cannot be written, and there whole or not at
all.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import InputError
from stages.disk import explained


def check_place(path: Path) -> None:
    """Raises InputError if no file can be written there, which is better known before the work than after it."""
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else f"cannot be written: there is no folder {path.parent}"
        raise InputError(f"--out {path} {problem}; name a file in a folder that is there")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A place to write to, which becomes the file if nothing goes wrong. Raises TryAgain if the disk is full."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        told = explained(error, path.parent)
        if told is error:
            raise
        raise told from error
    finally:
        temporary.unlink(missing_ok=True)
