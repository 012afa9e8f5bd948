"""A user relies on: what comes out of the cache is the block, whatever happens to processes, downloads and the disk;
and the cache never takes more of the disk than was allowed.
"""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from data.errors import InputError
from data.shards.cache import BlockCache, WrongContent
from tests.data.shards.blocks import (
    ROOM,
    deleted_mappings,
    made,
    names,
    nothing_unfinished,
    opened,
    used,
    waiting_for_a_claim,
)


def ends(function: Callable[[], object]) -> None:
    """Call it in a thread that may hang, which is a failure."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "it waits for what never comes"


def test_a_block_is_fetched_once_and_then_mapped(tmp_path: Path) -> None:
    block, cache = made(0), BlockCache(tmp_path, ROOM)
    assert cache.kept(block.sha256) is None
    first = opened(cache, block)
    assert np.shares_memory(opened(cache, block), first) and np.shares_memory(cache.kept(block.sha256), first)
    opened(BlockCache(tmp_path, ROOM), block)
    assert block.num_fetched == cache.num_fetched == 1
    assert names(tmp_path) == {block.sha256.hex()} and nothing_unfinished(tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


@pytest.mark.parametrize(
    "change", [lambda c: c[:-1], lambda c: c + b"x", lambda c: b"", lambda c: c[:9] + b"x" + c[10:]]
)
def test_content_that_is_not_the_block_is_never_used(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    block, cache = made(0), BlockCache(tmp_path, ROOM)
    with pytest.raises(WrongContent):
        cache.open(block.sha256, block.size, lambda: change(block.content))
    assert names(tmp_path) == set() and nothing_unfinished(tmp_path) and used(tmp_path) == 0
    opened(cache, block)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, 1000),
        lambda path: os.truncate(path, 0),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\0"),
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
    ],
)
def test_a_damaged_block_is_deleted_and_fetched_again(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    block, other = made(0), made(1)
    for each in (block, other):
        opened(BlockCache(tmp_path, ROOM), each)
    damage(tmp_path / "blocks" / block.sha256.hex())
    cache = BlockCache(tmp_path, ROOM)
    opened(cache, other)
    opened(cache, block)
    assert (block.num_fetched, other.num_fetched, cache.num_damaged) == (2, 1, 1)
    opened(BlockCache(tmp_path, ROOM), block)
    assert block.num_fetched == 2 and used(tmp_path) == block.size + other.size


def test_a_block_that_grew_once_it_was_counted_is_fetched_anew(tmp_path: Path) -> None:
    block, caches = made(0), [BlockCache(tmp_path, ROOM) for _ in range(2)]
    opened(caches[0], block)
    with open(tmp_path / "blocks" / block.sha256.hex(), "ab") as file:
        file.write(b"more")
    opened(caches[1], block)
    assert (block.num_fetched, caches[1].num_damaged) == (2, 1) and used(tmp_path) == block.size


def test_the_block_not_used_for_longest_is_evicted(tmp_path: Path) -> None:
    """Uses by another object on the directory count, as those of another process do."""
    blocks = [made(7 * number) for number in range(4)]  # of one size
    cache = BlockCache(tmp_path, 3 * blocks[0].size, touch_seconds=0)
    for block in blocks[:3]:
        opened(cache, block)
    opened(BlockCache(tmp_path, 3 * blocks[0].size), blocks[0])
    opened(cache, blocks[3])
    assert names(tmp_path) == {block.sha256.hex() for block in (blocks[0], blocks[2], blocks[3])}
    assert used(tmp_path) == 3 * blocks[0].size


def test_an_eviction_makes_room_for_more_than_one_block_of_many(tmp_path: Path) -> None:
    blocks = [made(7 * number) for number in range(129)]
    cache = BlockCache(tmp_path, 128 * blocks[0].size)
    for block in blocks:
        opened(cache, block)
    assert used(tmp_path) == (128 - 4 + 1) * blocks[0].size


def test_a_bound_smaller_than_a_block_is_refused(tmp_path: Path) -> None:
    block = made(0)
    with pytest.raises(InputError, match=f"bounded to 1000 bytes, but a block of the shards has {block.size}; raise"):
        opened(BlockCache(tmp_path, 1000), block)
    opened(BlockCache(tmp_path, block.size), block)


def test_a_smaller_bound_is_kept_from_the_opening_on(tmp_path: Path) -> None:
    for number in range(5):
        opened(BlockCache(tmp_path, ROOM), made(number))
    BlockCache(tmp_path, 100_000)
    assert 0 < used(tmp_path) <= 100_000


def test_an_evicted_block_stays_valid_where_it_is_mapped_and_its_space_comes_back(tmp_path: Path) -> None:
    first, second, third = made(0), made(7), made(14)
    mine, another = (BlockCache(tmp_path, first.size) for _ in range(2))
    content = opened(mine, first)
    opened(another, second)
    assert names(tmp_path) == {second.sha256.hex()}
    assert content.tobytes() == first.content and opened(mine, first) is content, "mapped still"
    assert deleted_mappings(tmp_path) == 1
    del content
    opened(mine, third)
    assert deleted_mappings(tmp_path) == 1, "the second, which the other has mapped"
    opened(another, first)
    assert deleted_mappings(tmp_path) == 1, "the third"


def test_an_evicted_block_is_fetched_again_when_it_is_wanted_again(tmp_path: Path) -> None:
    first, second = made(0), made(7)
    mine, another = (BlockCache(tmp_path, first.size, touch_seconds=0) for _ in range(2))
    opened(mine, first)
    opened(another, second)
    opened(mine, first)  # notices
    assert deleted_mappings(tmp_path) == 0
    opened(mine, first)
    assert first.num_fetched == 2 and names(tmp_path) == {first.sha256.hex()}


def test_an_evicted_block_that_another_has_fetched_again_is_forgotten_when_it_is_asked_for(tmp_path: Path) -> None:
    first, second = made(0), made(7)
    mine, another = (BlockCache(tmp_path, first.size, touch_seconds=0) for _ in range(2))
    opened(mine, first)
    opened(another, second)
    opened(another, first)
    assert deleted_mappings(tmp_path) == 1
    opened(mine, first)
    assert deleted_mappings(tmp_path) == 0 and first.num_fetched == 2


def test_an_evicted_block_that_another_has_fetched_again_is_forgotten_with_the_next_fetch(tmp_path: Path) -> None:
    first, second, third, fourth = (made(7 * number) for number in range(4))
    mine, another = (BlockCache(tmp_path, 2 * first.size) for _ in range(2))
    opened(mine, first)
    for block in (second, third, first):
        opened(another, block)
    del another
    opened(mine, fourth)
    assert names(tmp_path) == {first.sha256.hex(), fourth.sha256.hex()} and deleted_mappings(tmp_path) == 0


@pytest.mark.parametrize("call", ["posix_fallocate", "fsync", "ftruncate"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, "injected")

    kept, block, cache = made(1), made(0), BlockCache(tmp_path, ROOM)
    opened(cache, kept)
    with monkeypatch.context() as patched:
        patched.setattr(f"data.shards.cache.os.{call}", full)
        with pytest.raises(OSError, match=f"disk of the block cache {tmp_path} is full.*free some space") as raised:
            opened(cache, block)
    assert raised.value.errno == number
    assert names(tmp_path) == {kept.sha256.hex()} and nothing_unfinished(tmp_path) and used(tmp_path) == kept.size
    opened(cache, block)


@pytest.mark.parametrize(("call", "number"), [("rename", 0), *(("pwrite", number) for number in range(4))])
def test_an_error_of_the_disk_ends_a_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """Whichever call has it: the block can be had afterwards, and no descriptor is left open."""
    block, cache, sound = made(0), BlockCache(tmp_path, ROOM), getattr(os, call)
    left = [number]

    def failing(*arguments: object) -> object:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.EIO, "injected")
        return sound(*arguments)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(f"data.shards.block_files.os.{call}", failing)
    with pytest.raises(OSError, match="injected"):
        opened(cache, block)
    assert len(os.listdir("/proc/self/fd")) == before
    ends(lambda: opened(cache, block))
    assert cache.kept(block.sha256) is not None
    assert names(tmp_path) == {block.sha256.hex()} and nothing_unfinished(tmp_path) and used(tmp_path) == block.size


def test_a_process_that_was_forked_in_between_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has copies of all open descriptors, those of the claim and of the ledger among them."""
    block, begun, waits, children = made(0), threading.Event(), waiting_for_a_claim(monkeypatch), list[int]()
    rename = os.rename

    def fetch() -> bytes:
        begun.set()
        waits.wait(10)
        return block.fetch()

    def forking(*arguments: str) -> None:
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        children.append(child)
        rename(*arguments)

    monkeypatch.setattr("data.shards.block_files.os.rename", forking)
    caches = [BlockCache(tmp_path, ROOM) for _ in range(2)]
    first = threading.Thread(target=lambda: caches[0].open(block.sha256, block.size, fetch))
    first.start()
    begun.wait(10)
    try:
        ends(lambda: opened(caches[1], block))
        ends(lambda: opened(BlockCache(tmp_path, ROOM), made(1)))
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        first.join(10)
    assert len(children) == 2 and block.num_fetched == 1


def test_a_directory_that_cannot_be_made_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file cannot be used"):
        BlockCache(tmp_path / "file", ROOM)
