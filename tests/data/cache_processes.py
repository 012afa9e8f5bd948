"""Processes that use a block cache, for tests to watch and to kill.

python -m tests.data.cache_processes hold DIRECTORY MAX_BYTES BLOCK             # never ends its download
python -m tests.data.cache_processes read DIRECTORY MAX_BYTES SEED COUNT        # blocks at random, in two threads
"""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from data.cache import BlockCache
from tests.data.blocks import Made, made


def start(*arguments: object) -> subprocess.Popen[str]:
    """A process; its first line says that it is at work."""
    command = [sys.executable, "-m", "tests.data.cache_processes", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


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
                block = made(chance.randrange(20))
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


if __name__ == "__main__":
    mode, directory, max_bytes, *rest = sys.argv[1:]
    opened = BlockCache(Path(directory), int(max_bytes), touch_seconds=0)
    if mode == "hold":
        hold(opened, made(int(rest[0])))
    else:
        read(opened, int(rest[0]), int(rest[1]))
