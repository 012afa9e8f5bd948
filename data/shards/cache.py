"""Blocks of bytes from elsewhere, kept on the local disk within a bound, for several processes and threads at once.

    cache = BlockCache(Path("/scratch/blocks"), max_bytes=50_000_000_000)
    content = cache.open(sha256, size, fetch)       # uint8[size], memory-mapped; fetch() -> bytes where it is missing

* A block is named by its sha256. Its content is checked when it is fetched, and again when a process maps it: a damaged
  one is deleted and fetched anew. Other content is never returned.
* A block is there whole or not at all: it is written beside, synced and renamed. What a killed process leaves is taken
  over by whoever wants that block, or else removed.
* The files never hold more than max_bytes, unfinished ones counted with their full size: room is made before a
  download, by removing the blocks that were not used for longest. An evicted block stays valid where it is mapped;
  its space is free once every process that has it mapped has asked for it again or fetched another block.
* Of several who want one block, one fetches it and the others wait. So a fetch must end by itself.

The locks are flock's: the directory must be on a disk of this machine.
"""

import errno
import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.errors import InputError
from data.shards.block_files import BlockFiles, Claim, is_file
from data.shards.mapped_file import map_file

MAPPED_BLOCKS = 16_384  # most that a process keeps mapped; Linux allows it 65,530 mappings by default
TOUCH_SECONDS = 1.0


class WrongContent(OSError):
    """What was fetched is not the block: too short, too long or other bytes."""


@dataclass
class _Mapped:
    """inode: of the file, which is that of no other as long as this one is mapped."""

    content: np.ndarray
    inode: int
    touched: float


class BlockCache:
    """A directory of blocks. num_fetched, num_damaged: how many this object has fetched, and has found damaged."""

    def __init__(self, directory: Path, max_bytes: int, *, touch_seconds: float = TOUCH_SECONDS) -> None:
        """touch_seconds: how old the record of a block's last use may be. Raises InputError if the directory cannot be
        used.
        """
        self.num_fetched = 0
        self.num_damaged = 0
        self._touch_seconds = touch_seconds
        self._mapped: OrderedDict[str, _Mapped] = OrderedDict()
        self._evictions = 0
        self._lock = threading.Lock()
        try:
            self._files = BlockFiles(directory, max_bytes)
        except OSError as error:
            raise InputError(f"the block cache {directory} cannot be used: {error}") from error

    def open(self, sha256: bytes, size: int, fetch: Callable[[], bytes]) -> np.ndarray:
        """The content of a block: uint8[size], read-only.

        Raises InputError if the bound is smaller than the block; WrongContent if what was fetched is not the block;
        OSError (ENOSPC) if the disk is full; whatever `fetch` raises.
        """
        assert size > 0, "an empty block"
        name = sha256.hex()
        if size > self._files.max_bytes:
            raise InputError(
                f"the block cache {self._files.directory} is bounded to {self._files.max_bytes} bytes, but a block of "
                f"the shards has {size}; raise the bound"
            )
        while True:
            found = self.kept(sha256)
            if found is None:
                found = self._map(name, size)
            if found is None:
                found = self._fetch(name, size, fetch)
            if found is not None:
                return found

    def kept(self, sha256: bytes) -> np.ndarray | None:
        """The content of a block that this process has mapped, else None."""
        name, now = sha256.hex(), time.monotonic()
        with self._lock:
            found = self._mapped.get(name)
            if found is None:
                return None
            self._mapped.move_to_end(name)
            is_stale = now - found.touched >= self._touch_seconds
            if is_stale:
                found.touched = now
        if is_stale and not self._touch(name, found.inode):
            self._forget(name, found.inode)
        return found.content

    def _map(self, name: str, size: int) -> np.ndarray | None:
        """The content of a block on the disk; None if it is not there, or was damaged and is deleted now."""
        path = self._files.path(name)
        try:
            inode = os.stat(path).st_ino
            content = map_file(path)
        except FileNotFoundError:
            return None
        if _is_block(content.data, name, size):
            if self._touch(name, inode):
                self._keep(name, content, inode)
            return content
        self.num_damaged += 1
        self._files.remove(name, inode)
        return None

    def _fetch(self, name: str, size: int, fetch: Callable[[], bytes]) -> np.ndarray | None:
        """Fetch a block. None if another was at it, or there was no room: look again."""
        claim = self._files.claim(name, size)
        self._forget_evicted()
        if claim is None:
            return None
        inode = os.fstat(claim.descriptor).st_ino
        try:
            mapped = self._download(claim, fetch)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(
                    error.errno,
                    f"the disk of the block cache {self._files.directory} is full, below the cache's bound of "
                    f"{self._files.max_bytes} bytes; free some space or lower the bound",
                ) from error
            raise
        self.num_fetched += 1
        self._keep(name, mapped, inode)
        return mapped

    def _download(self, claim: Claim, fetch: Callable[[], bytes]) -> np.ndarray:
        """Make a claimed block. The claim has ended in any case."""
        try:
            os.posix_fallocate(claim.descriptor, 0, claim.size)
            content = fetch()
            if not _is_block(content, claim.name, claim.size):
                raise WrongContent(
                    errno.EIO, f"{len(content)} bytes came that are not the block of {claim.size} bytes wanted"
                )
            _write(claim, content)
            mapped = map_file(claim.path)  # while nobody can evict it
        except BaseException:
            self._files.give_up(claim)
            raise
        self._files.publish(claim)
        return mapped

    def _keep(self, name: str, content: np.ndarray, inode: int) -> None:
        with self._lock:
            self._mapped[name] = _Mapped(content, inode, time.monotonic())
            while len(self._mapped) > MAPPED_BLOCKS:
                self._mapped.popitem(last=False)

    def _touch(self, name: str, inode: int) -> bool:
        """Record that a block is used. Whether the file that this process has mapped is still the block's: it may have
        been evicted and fetched again by another.
        """
        path = self._files.path(name)
        try:
            now = time.time_ns()  # finer than the kernel's own clock for files
            os.utime(path, ns=(now, now))
        except FileNotFoundError:
            return False
        return is_file(path, inode)

    def _forget(self, name: str, inode: int) -> None:
        """Unmap a file, unless another is mapped under its name by now."""
        with self._lock:
            if name in self._mapped and self._mapped[name].inode == inode:
                del self._mapped[name]

    def _forget_evicted(self) -> None:
        """Unmap what was evicted since the last call, by whomever: its space is free only then."""
        with self._lock:
            if self._evictions == self._files.evictions:
                return
            self._evictions = self._files.evictions
            mapped = [(name, found.inode) for name, found in self._mapped.items()]
        for name, inode in mapped:
            if not is_file(self._files.path(name), inode):
                self._forget(name, inode)


def _is_block(content: bytes | memoryview, name: str, size: int) -> bool:
    return len(content) == size and hashlib.sha256(content).hexdigest() == name


def _write(claim: Claim, content: bytes) -> None:
    with open(claim.descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.ftruncate(claim.descriptor, claim.size)  # a dead owner may have left more
    os.fsync(claim.descriptor)
