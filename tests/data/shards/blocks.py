"""Blocks of known content, and what a cache's directory holds."""

import fcntl
import hashlib
import os
import random
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from data.shards.cache import BlockCache

ROOM = 10**9


@dataclass
class Made:
    """A block. num_fetched: how often it was asked for."""

    content: bytes
    num_fetched: int = 0
    sha256: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.sha256 = hashlib.sha256(self.content).digest()

    @property
    def size(self) -> int:
        return len(self.content)

    def fetch(self) -> bytes:
        self.num_fetched += 1
        return self.content


@cache
def content_of(number: int) -> bytes:
    return random.Random(number).randbytes(40_000 + 1_000 * (number % 7))


def made(number: int) -> Made:
    """40,000 to 46,000 bytes."""
    return Made(content_of(number))


def used(directory: Path) -> int:
    """Bytes of all files of a cache at one moment, unfinished ones in full."""
    with open(directory / "ledger", "rb") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        blocks = sum(path.stat().st_size for path in (directory / "blocks").iterdir())
        return blocks + sum(int(path.suffix[1:]) for path in (directory / "parts").iterdir())


def names(directory: Path) -> set[str]:
    """The blocks that are there."""
    return {path.name for path in (directory / "blocks").iterdir()}


def opened(cache: BlockCache, block: Made) -> np.ndarray:
    content = cache.open(block.sha256, block.size, block.fetch)
    assert content.dtype == np.uint8 and content.tobytes() == block.content
    return content


def nothing_unfinished(directory: Path) -> bool:
    return not list((directory / "parts").iterdir())


def deleted_mappings(directory: Path, process: int | str = "self") -> int:
    """Files of the cache that are removed and keep their space, since a process has them mapped."""
    return sum(
        str(directory) in line and line.endswith("(deleted)")
        for line in Path(f"/proc/{process}/maps").read_text().splitlines()
    )


def waiting_for_a_claim(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a thread is about to wait for another that makes the block which it wants."""
    waits, flock = threading.Event(), fcntl.flock

    def watched(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and "/parts/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            waits.set()
        flock(descriptor, operation)

    monkeypatch.setattr("data.shards.block_files.fcntl.flock", watched)
    return waits
