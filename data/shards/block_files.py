"""The files of a block cache: which are there, which are being written, and how many bytes they may hold together.

Several processes share a directory. Every change is made under the lock of its ledger, so at no moment do the files
hold more than the bound; an unfinished file counts with its full size from the moment it is claimed.

    claim = files.claim(name, size)     # None: another has just made it, or tried to; look again
    ...write claim.descriptor...
    files.publish(claim)                # or files.give_up(claim)

A claim is a file `parts/<name>.<size>` that its owner has locked. The kernel drops that lock when the owner dies: then
whoever waits for this block takes the claim over, and those that nobody waits for are removed with the next eviction.
Locks are given back before their files are closed, since a process that was forked meanwhile has the same open files.
"""

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EVICTED_SHARE = 32  # an eviction frees at least this part of the bound, so that many downloads share one listing
POLL_SECONDS = 0.02
LEDGER = struct.Struct("<8sQQ")
UNCERTAIN, CERTAIN = bytes(8), b"ledger-1"


@dataclass(frozen=True)
class Claim:
    """A file that this thread alone may write, and the room for it. descriptor: open, and locked until it is closed."""

    name: str
    size: int
    path: Path
    descriptor: int


@dataclass
class _Ledger:
    """used: bytes of all files, unfinished ones in full. evictions: how often blocks were removed."""

    used: int
    evictions: int


class BlockFiles:
    """Files in `directory`. `evictions`: how often blocks had been removed, as this process has last seen it."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        """Makes the directory, and evicts if the bound is smaller than what it holds. Raises OSError."""
        self.directory = directory
        self.max_bytes = max_bytes
        self.evictions = 0
        self._blocks = directory / "blocks"
        self._parts = directory / "parts"
        self._blocks.mkdir(parents=True, exist_ok=True)
        self._parts.mkdir(exist_ok=True)
        with self._ledger() as ledger:
            ledger.used = self._measure()  # a crash of the machine may have left a ledger older than the files
            self._make_room(ledger, 0)

    def path(self, name: str) -> Path:
        """Where a block lies if it is there."""
        return self._blocks / name

    def claim(self, name: str, size: int) -> Claim | None:
        """The right to write a block. None if it is there now, if another has just tried to make it, or if all room is
        taken by unfinished files: look again then. Waits for the other. Raises OSError, and has claimed nothing then.
        """
        path = self._parts / f"{name}.{size}"
        with contextlib.ExitStack() as held:
            with self._ledger() as ledger:
                if self.path(name).exists():
                    return None
                descriptor = _opened(path)
                if descriptor is None and self._make_room(ledger, size):
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
                    ledger.used += size
                if descriptor is not None:
                    held.callback(_release, descriptor)
                is_mine = descriptor is not None and _lock_now(descriptor)
            if descriptor is None:
                time.sleep(POLL_SECONDS)
                return None
            if not is_mine:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                is_mine = _is_at(path, descriptor)  # its owner has died
            if is_mine:
                held.pop_all()
                return Claim(name, size, path, descriptor)
            return None

    def publish(self, claim: Claim) -> None:
        """Show what was written to all. The claim ends in any case: after an OSError the file is as one that a dead
        owner has left.
        """
        try:
            with self._ledger():
                os.rename(claim.path, self.path(claim.name))
        finally:
            _release(claim.descriptor)

    def give_up(self, claim: Claim) -> None:
        """Remove what was written, and give its room back."""
        try:
            with self._ledger() as ledger:
                claim.path.unlink()
                ledger.used -= claim.size
        finally:
            _release(claim.descriptor)

    def remove(self, name: str, inode: int) -> None:
        """Remove a damaged block, unless another file has taken its name."""
        with self._ledger() as ledger, contextlib.suppress(FileNotFoundError):
            if is_file(self.path(name), inode):
                self.path(name).unlink()
                ledger.used = self._measure()  # its size may not be the one that was counted
                ledger.evictions += 1

    @contextlib.contextmanager
    def _ledger(self) -> Iterator[_Ledger]:
        """The ledger, locked. One that a kill left uncertain is measured anew."""
        descriptor = os.open(self.directory / "ledger", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            stored = os.pread(descriptor, LEDGER.size, 0).ljust(LEDGER.size, b"\0")
            certain, used, evictions = LEDGER.unpack(stored)
            ledger = _Ledger(used if certain == CERTAIN else self._measure(), evictions)
            os.pwrite(descriptor, UNCERTAIN, 0)
            yield ledger
            os.pwrite(descriptor, LEDGER.pack(CERTAIN, ledger.used, ledger.evictions), 0)
            self.evictions = ledger.evictions
        finally:
            _release(descriptor)

    def _make_room(self, ledger: _Ledger, size: int) -> bool:
        """Evict until `size` bytes more fit into the bound. Whether they do. Ledger locked."""
        if ledger.used + size <= self.max_bytes:
            return True
        unfinished = self._measure_unfinished()
        if unfinished + size > self.max_bytes:
            return False  # whatever is evicted; what the dead left stays counted until there is room
        found = sorted(
            (entry.stat().st_mtime_ns, entry.path, entry.stat().st_size) for entry in os.scandir(self._blocks)
        )
        ledger.used = unfinished + sum(length for _, _, length in found)
        wanted = self.max_bytes - max(size, self.max_bytes // EVICTED_SHARE)
        evicted = False
        for _, path, length in found:
            if ledger.used <= wanted:
                break
            os.unlink(path)
            ledger.used -= length
            evicted = True
        ledger.evictions += evicted
        return ledger.used + size <= self.max_bytes

    def _measure(self) -> int:
        """Bytes of all files; unfinished ones of the dead are removed. Ledger locked."""
        return sum(entry.stat().st_size for entry in os.scandir(self._blocks)) + self._measure_unfinished()

    def _measure_unfinished(self) -> int:
        used = 0
        for entry in os.scandir(self._parts):
            descriptor = os.open(entry.path, os.O_RDWR)
            try:
                if _lock_now(descriptor):
                    os.unlink(entry.path)
                else:
                    used += int(entry.name.rpartition(".")[2])
            finally:
                _release(descriptor)
        return used


def _opened(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None


def _lock_now(descriptor: int) -> bool:
    """Lock a file unless another has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _release(descriptor: int) -> None:
    """Unlock and close a file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the path is still that of the opened file."""
    return is_file(path, os.fstat(descriptor).st_ino)


def is_file(path: Path, inode: int) -> bool:
    """Whether the path is that of a file that is open or mapped: then no other file can have its inode."""
    try:
        return os.stat(path).st_ino == inode
    except FileNotFoundError:
        return False
