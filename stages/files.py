"""Files that are there whole or not at all: write, fsync, rename, fsync of the folder."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write `content` so that a reader, even after a crash, sees the old file, or the new one, and nothing between."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Atomic, readable, and the same bytes for the same value."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def fsync_file(path: Path) -> None:
    """Bring a finished file's content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_directory(path: Path) -> None:
    """Bring a folder's entries (names, renames) to the disk."""
    fsync_file(path)


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def last_bytes(path: Path, most: int = 1 << 16) -> bytes:
    """The end of a file that may be long: so many bytes at most; none where there is no file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - most, 0))
            return file.read()
    except FileNotFoundError:
        return b""


def tree(directory: Path) -> list[str]:
    """Relative POSIX paths of all files below `directory`, sorted. Raises on links, which an artifact must not hold."""
    found = []
    for folder, folders, files in os.walk(directory):
        for name in files + [name for name in folders if os.path.islink(os.path.join(folder, name))]:
            path = Path(folder, name)
            if path.is_symlink():
                raise AssertionError(f"{path} is a link; an artifact holds plain files only")
            found.append(path.relative_to(directory).as_posix())
    return sorted(found)
