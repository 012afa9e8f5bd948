"""sha256 of files, remembered between runs by (path, size, times of modification and of change, inode), so that an
unchanged source is not read again."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from data.errors import InputError

# A file that was changed within this time before it was hashed may change again without its times moving.
SETTLED_NANOSECONDS = 2_000_000_000


class FileHashes:
    """Digests with a cache file. Use as a context manager: what was learnt is written on leaving. A cache that cannot
    be read or written is only slower."""

    def __init__(self, cache: Path, clock: Callable[[], int] = time.time_ns) -> None:
        """clock: nanoseconds since the epoch."""
        self._cache = cache
        self._clock = clock
        self._known: dict[str, list[object]] = {}
        self._changed = False
        try:
            loaded = json.loads(cache.read_bytes())
        except (OSError, ValueError):
            loaded = {}
        if isinstance(loaded, dict):
            self._known = {path: entry for path, entry in loaded.items() if isinstance(entry, list) and len(entry) == 5}

    def __enter__(self) -> "FileHashes":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._changed:
            return
        part = self._cache.with_name(f"{self._cache.name}.{os.getpid()}")
        try:
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(self._known, sort_keys=True))
            os.replace(part, self._cache)
        except OSError:
            part.unlink(missing_ok=True)

    def of(self, path: Path) -> tuple[int, str]:
        """(size in bytes, sha256 in hex) of a file. Raises InputError if it cannot be read."""
        try:
            status = os.stat(path)
            place = str(path.resolve())
            # A program may set the modification time back; the time of change it cannot.
            stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
            known = self._known.get(place)
            if known is not None and known[:4] == stamp:
                return status.st_size, str(known[4])
            now = self._clock()
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; a source is a readable file") from None
        if now - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED_NANOSECONDS:
            self._known[place] = [*stamp, digest]
            self._changed = True
        return status.st_size, digest
