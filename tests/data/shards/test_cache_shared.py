"""A user relies on: readers that share a cache fetch a block once, wait for one another, keep its bound together, and
are not held up by one that was killed.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from data.shards.block_files import BlockFiles
from data.shards.cache import BlockCache
from tests.data.shards.blocks import (
    ROOM,
    Made,
    deleted_mappings,
    made,
    names,
    nothing_unfinished,
    opened,
    used,
    waiting_for_a_claim,
)
from tests.data.shards.cache_processes import NUM_BLOCKS, start, tell, told


def test_one_fetches_and_the_others_wait(tmp_path: Path) -> None:
    block, release = made(0), threading.Event()

    def fetch() -> bytes:
        release.wait(10)
        return block.fetch()

    caches = [BlockCache(tmp_path, ROOM) for _ in range(3)]
    threads = [
        threading.Thread(target=lambda c=c: c.open(block.sha256, block.size, fetch)) for c in caches for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert names(tmp_path) == set() and used(tmp_path) == block.size, "room is taken before the content is there"
    release.set()
    for thread in threads:
        thread.join()
    assert block.num_fetched == 1 and names(tmp_path) == {block.sha256.hex()}


def test_who_waits_tries_for_himself_when_a_fetch_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block, begun, waits = made(0), threading.Event(), waiting_for_a_claim(monkeypatch)

    def failing() -> bytes:
        begun.set()
        assert waits.wait(10)
        raise ConnectionError("the network is gone")

    def fails() -> None:
        with pytest.raises(ConnectionError):
            BlockCache(tmp_path, ROOM).open(block.sha256, block.size, failing)

    first = threading.Thread(target=fails)
    first.start()
    begun.wait(10)
    second = threading.Thread(target=lambda: opened(BlockCache(tmp_path, ROOM), block))
    second.start()
    first.join()
    second.join()
    assert waits.is_set()
    assert block.num_fetched == 1 and names(tmp_path) == {block.sha256.hex()} and nothing_unfinished(tmp_path)


@contextmanager
def while_another_is_fetched(cache: BlockCache, slow: Made, block: Made) -> Iterator[None]:
    """Within, `slow` is being fetched and `block` has been asked for; both are there when it is left."""
    begun, release = threading.Event(), threading.Event()

    def fetch() -> bytes:
        begun.set()
        release.wait(10)
        return slow.fetch()

    first = threading.Thread(target=lambda: cache.open(slow.sha256, slow.size, fetch))
    first.start()
    begun.wait(10)
    second = threading.Thread(target=lambda: opened(cache, block))
    second.start()
    time.sleep(0.1)
    yield
    release.set()
    first.join()
    second.join()


def test_a_download_waits_for_room_that_others_have_taken(tmp_path: Path) -> None:
    slow, block = made(0), made(7)
    cache = BlockCache(tmp_path, slow.size + block.size // 2)
    with while_another_is_fetched(cache, slow, block):
        assert block.num_fetched == 0 and used(tmp_path) == slow.size
    assert block.num_fetched == 1 and names(tmp_path) == {block.sha256.hex()}


def test_nothing_is_evicted_for_a_download_that_has_no_room_yet(tmp_path: Path) -> None:
    kept, slow, block = (Made(random.Random(size).randbytes(size)) for size in (30_000, 60_000, 50_000))
    cache = BlockCache(tmp_path, 100_000)
    opened(cache, kept)
    with while_another_is_fetched(cache, slow, block):
        assert names(tmp_path) == {kept.sha256.hex()} and BlockFiles(tmp_path, ROOM).evictions == 0
    assert block.num_fetched == 1 and names(tmp_path) == {block.sha256.hex()}


def test_a_reader_killed_in_a_download_is_followed_by_who_waits(tmp_path: Path) -> None:
    block = made(3)
    killed = start("hold", tmp_path, ROOM, 3)
    found: list[np.ndarray] = []
    waiting = threading.Thread(target=lambda: found.append(opened(BlockCache(tmp_path, ROOM), block)))
    waiting.start()
    time.sleep(0.2)
    assert not found and used(tmp_path) == block.size, "the other is alive: it is waited for"
    killed.kill()
    killed.wait()
    waiting.join(10)
    assert len(found) == 1 and block.num_fetched == 1
    assert names(tmp_path) == {block.sha256.hex()} and nothing_unfinished(tmp_path) and used(tmp_path) == block.size


def test_what_a_killed_reader_leaves_takes_no_room(tmp_path: Path) -> None:
    """Neither from who opens the cache later, nor from who needs room now, nor from who wants just that block."""
    block, other = made(3), made(10)  # of one size
    running = BlockCache(tmp_path, block.size)
    for follow in (
        lambda: BlockCache(tmp_path, ROOM),
        lambda: opened(running, other),
        lambda: opened(running, block),
    ):
        killed = start("hold", tmp_path, block.size, 3)
        killed.kill()
        killed.wait()
        assert not nothing_unfinished(tmp_path)
        follow()
        assert nothing_unfinished(tmp_path) and used(tmp_path) <= block.size


def test_a_ledger_that_a_kill_left_uncertain_is_measured_anew(tmp_path: Path) -> None:
    blocks = [made(7 * number) for number in range(4)]
    cache = BlockCache(tmp_path, 3 * blocks[0].size)
    opened(cache, blocks[0])
    for content in (b"", bytes(24), b"torn"):
        (tmp_path / "ledger").write_bytes(content)
        for block in blocks:
            opened(cache, block)
            assert used(tmp_path) <= 3 * block.size
    assert len(names(tmp_path)) == 3


def test_processes_that_come_and_are_killed_never_pass_the_bound_or_read_another_content(tmp_path: Path) -> None:
    bound, chance = 5 * 46_000, random.Random(0)
    BlockCache(tmp_path, bound)
    most, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            most[0] = max(most[0], used(tmp_path))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        killed = [start("read", tmp_path, bound, seed, 10**9) for seed in range(2)]
        readers = [start("read", tmp_path, bound, seed, count) for seed, count in ((2, 60), (3, 180))]
        for process in killed:
            time.sleep(0.2 + 0.2 * chance.random())
            process.kill()
            process.wait()
        assert [told(process) for process in readers] == ["read", "read"]
    finally:
        stop.set()
        watching.join()
    assert bound / 2 < most[0] <= bound
    for number in range(NUM_BLOCKS):  # also those that the first has mapped and the second has evicted
        opened(BlockCache(tmp_path, ROOM), made(number))
    for process in readers:
        tell(process)
        assert told(process) == "asked" and deleted_mappings(tmp_path, process.pid) == 0
        process.communicate(timeout=60)
        assert process.returncode == 0
    BlockCache(tmp_path, bound)
    assert nothing_unfinished(tmp_path) and used(tmp_path) <= bound
    for number in range(NUM_BLOCKS):
        opened(BlockCache(tmp_path, bound), made(number))
