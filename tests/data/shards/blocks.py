"""Blocks of known content, and what a cache's directory holds."""

import fcntl
import hashlib
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


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
