"""Processes that use a block cache, for tests to watch and to kill.

python -m tests.data.shards.cache_processes hold DIRECTORY MAX_BYTES BLOCK       # never ends its download
python -m tests.data.shards.cache_processes read DIRECTORY MAX_BYTES SEED COUNT  # blocks at random, in two threads

The second says "read" when it is through. At a line of input it asks for what it has mapped, once more, says "asked",
and ends with its input.
"""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from data.shards.cache import BlockCache
from tests.data.shards.blocks import Made, made

NUM_BLOCKS = 20


def start(*arguments: object) -> subprocess.Popen[str]:
    """A process; its first line says that it is at work."""
    command = [sys.executable, "-m", "tests.data.shards.cache_processes", *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert told(process) == "begun"
    return process


def told(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def tell(process: subprocess.Popen[str]) -> None:
    """Give a process a line of input."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def hold(cache: BlockCache, block: Made) -> None:
    def never() -> bytes:
        print("begun", flush=True)
        time.sleep(600)
        raise AssertionError("nobody has ended this process")

    cache.open(block.sha256, block.size, never)


def read(cache: BlockCache, seed: int, count: int) -> None:
    """Every content is looked at; a wrong one is an error."""
    failures: list[BaseException] = []

    def some(chance: random.Random) -> None:
        try:
            for _ in range(count):
                block = made(chance.randrange(NUM_BLOCKS))
                assert cache.open(block.sha256, block.size, block.fetch).tobytes() == block.content
        except BaseException as error:
            failures.append(error)

    print("begun", flush=True)
    threads = [threading.Thread(target=some, args=(random.Random(seed * 2 + number),)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    print("read", flush=True)
    sys.stdin.readline()
    for number in range(NUM_BLOCKS):
        cache.kept(made(number).sha256)
    print("asked", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    mode, directory, max_bytes, *rest = sys.argv[1:]
    opened = BlockCache(Path(directory), int(max_bytes), touch_seconds=0)
    if mode == "hold":
        hold(opened, made(int(rest[0])))
    else:
        read(opened, int(rest[0]), int(rest[1]))
