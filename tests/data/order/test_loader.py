"""A user relies on: whatever the ranks, the threads that read ahead and the restarts, a run is trained on the same
sequences in the same order, and every token of its shards is a target once in each epoch.
"""

import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data.order.batches import Phase, SampleOrder
from data.order.loader import IGNORE, Batch, BatchLoader, PackedDomain
from data.order.packing import PackingKind, Pieces, make_packing
from data.shards.files import shard_name
from data.shards.streams import open_streams
from tests.data.shards.shard_files import index_folder, write

END = 2
LENGTHS = {"prose": 20 * 5, "code": 7 * 5 - 2}
FAR = 100_000


class Numbers:
    """A stream whose token i is base + i. Each batch takes delay_seconds; the one with token `fails_at` is an error."""

    def __init__(self, base: int, length: int, delay_seconds: float = 0, fails_at: int = -1) -> None:
        self.base, self.length, self.delay_seconds, self.fails_at = base, length, delay_seconds, fails_at

    def fill(
        self, pieces: Pieces, inputs: np.ndarray, targets: np.ndarray, positions: np.ndarray, *, isolate: bool
    ) -> int:
        time.sleep(self.delay_seconds)
        for row, start, length in zip(pieces.row, pieces.start, pieces.length, strict=True):
            assert start >= 0 and start + length <= self.length
            if start <= self.fails_at < start + length:
                raise OSError("the disk is gone")
            inputs[row], targets[row], positions[row] = END, IGNORE, 0
            targets[row, :length] = np.arange(self.base + start, self.base + start + length)
            inputs[row, 1:length] = targets[row, : length - 1]
        return 0


def packed(stream: Numbers, sequence_tokens: int = 5) -> PackedDomain:
    packing = make_packing(
        "stream",
        num_tokens=stream.length,
        document_lengths=lambda: np.array([stream.length]),
        sequence_tokens=sequence_tokens,
    )
    return PackedDomain(stream, packing)  # type: ignore[arg-type]


def loader(
    rank: int = 0,
    world_size: int = 1,
    rows: int = 4,
    excluded: tuple = (),
    delay_seconds: float = 0,
    fails_at: int = -1,
) -> BatchLoader:
    domains = {
        "prose": packed(Numbers(0, LENGTHS["prose"], delay_seconds, fails_at)),
        "code": packed(Numbers(FAR, LENGTHS["code"])),
    }
    order = SampleOrder(
        seed=3,
        num_sequences={name: domain.packing.num_sequences for name, domain in domains.items()},
        phases=[Phase(first_step=0, weights={"prose": 0.7, "code": 0.3}, longest_tokens=5, batch_tokens=rows * 5)],
        excluded=excluded,
    )
    return BatchLoader(order, domains, rank=rank, world_size=world_size)


def firsts(batches: list[Batch]) -> list[int]:
    """The first target of each row, which names the sequence."""
    return [int(row[0]) for batch in batches for row in batch.targets]


def test_rows_are_the_orders_sequences() -> None:
    for step in range(20):
        batch = loader().batch(step)
        assert batch.step == step and batch.inputs.shape == batch.targets.shape == batch.positions.shape == (4, 5)
        assert batch.inputs.dtype == batch.targets.dtype == np.int64 and batch.positions.dtype == np.int32
        base = np.array([FAR, 0])[batch.samples.domain]
        assert np.array_equal(batch.targets[:, 0], base + batch.samples.sequence * 5)
        assert batch.num_targets == (batch.targets != IGNORE).sum()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 7])
def test_ranks_are_disjoint_and_together_whole(world_size: int) -> None:
    """Also where they have unequal numbers of rows, or none."""
    for step in range(12):
        parts = [loader(rank, world_size).batch(step) for rank in range(world_size)]
        whole = loader().batch(step)
        for name in ("inputs", "targets", "positions"):
            assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
        assert sum(part.num_targets for part in parts) == whole.num_targets
        assert max(len(part.samples) for part in parts) - min(len(part.samples) for part in parts) <= 1


@pytest.mark.parametrize(("depth", "readers"), [(1, 1), (2, 3), (5, 2)])
def test_stopping_at_any_step_and_going_on_gives_the_undisturbed_run(depth: int, readers: int) -> None:
    """Batches were read ahead at each stop; whoever goes on begins from the step alone. One stop comes before any
    batch.
    """
    whole = firsts([loader().batch(step) for step in range(25)])
    found: list[int] = []
    step = 0
    for stop_after in (7, 3, 0, 5, 10):
        with loader().read_ahead(first_step=step, num_steps=25 - step, depth=depth, readers=readers) as batches:
            for _ in range(stop_after):
                found += firsts([next(batches)])
                step += 1
    assert found == whole


def test_epochs_after_a_resume_are_whole() -> None:
    with loader(rows=3).read_ahead(first_step=25, num_steps=200, readers=2) as batches:
        rows = [
            (int(d), int(e), int(s))
            for b in batches
            for d, s, e in zip(b.samples.domain, b.samples.sequence, b.samples.epoch, strict=True)
        ]
    epochs = sorted({(domain, epoch) for domain, epoch, _ in rows})
    for domain, sequences in enumerate((7, 20)):
        mine = [epoch for d, epoch in epochs if d == domain]
        assert len(mine) > 5
        for epoch in mine[1:-1]:
            assert sorted(s for d, e, s in rows if (d, e) == (domain, epoch)) == list(range(sequences))


def test_excluded_draws_are_left_out_and_nothing_else_moves() -> None:
    whole = [firsts([loader().batch(step)]) for step in range(20)]
    kept = [firsts([loader(excluded=((3, 5), (9, 10))).batch(step)]) for step in range(17)]
    assert kept == whole[:3] + whole[5:9] + whole[10:]


def test_domains_are_mixed_as_asked() -> None:
    domains = np.concatenate([loader().batch(step).samples.domain for step in range(50)])
    assert abs((domains == 1).sum() - 0.7 * 200) <= 2


def test_the_end_is_an_end_each_time_it_is_asked() -> None:
    with loader().read_ahead(first_step=0, num_steps=1, readers=2) as batches:
        assert next(batches).step == 0
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(batches)
    with loader().read_ahead(first_step=5, num_steps=0) as none, pytest.raises(StopIteration):
        next(none)


@pytest.mark.parametrize("readers", [1, 3])
def test_an_error_while_reading_ahead_surfaces_at_its_batch(readers: int) -> None:
    broken = next(step for step in range(30) if 40 in loader().batch(step).targets)
    with loader(fails_at=40).read_ahead(first_step=0, num_steps=30, depth=6, readers=readers) as batches:
        assert [next(batches).step for _ in range(broken)] == list(range(broken))
        with pytest.raises(OSError, match="disk is gone"):
            next(batches)
        with pytest.raises(StopIteration):
            next(batches)


def test_many_readers_keep_the_order_of_the_steps() -> None:
    class Uneven(Numbers):
        def fill(self, pieces: Pieces, *arrays: np.ndarray, isolate: bool) -> int:
            time.sleep(0.001 * (int(pieces.start[0]) // 5 % 4))
            return super().fill(pieces, *arrays, isolate=isolate)

    uneven = loader()
    uneven._domains[1] = packed(Uneven(0, LENGTHS["prose"]))
    with uneven.read_ahead(first_step=10, num_steps=60, depth=8, readers=4) as batches:
        found = list(batches)
    assert [batch.step for batch in found] == list(range(10, 70))
    assert firsts(found) == firsts([loader().batch(step) for step in range(10, 70)])


def test_read_ahead_is_bounded_and_its_threads_end() -> None:
    made: list[int] = []

    class Counted(BatchLoader):
        def batch(self, step: int) -> Batch:
            made.append(step)
            return super().batch(step)

    plain = loader()
    counted = Counted(plain._order, dict(zip(plain._order.domains, plain._domains, strict=True)))
    before = threading.active_count()
    with counted.read_ahead(first_step=0, num_steps=10**9, depth=3, readers=2) as batches:
        next(batches)
        assert threading.active_count() == before + 2
        deadline = time.monotonic() + 5
        while len(made) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert sorted(made) == [0, 1, 2, 3]
    assert threading.active_count() == before


def test_closing_ends_a_wait_for_data() -> None:
    batches = loader(delay_seconds=0.2).read_ahead(first_step=0, num_steps=3)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(StopIteration):
            while True:
                next(batches)
        ended.set()

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    batches.close()
    assert ended.wait(5)
    waiting.join()


def test_waiting_for_data_is_measured() -> None:
    with loader(delay_seconds=0.02).read_ahead(first_step=0, num_steps=5) as slow:
        list(slow)
    with loader().read_ahead(first_step=0, num_steps=3, depth=3) as fast:
        deadline = time.monotonic() + 5
        while len(fast._ready) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        list(fast)
    assert slow.waited_seconds > 0.05 and fast.waited_seconds == 0


def test_offsets_beyond_32_bits() -> None:
    """Three documents of 2**30 tokens, several epochs: the last sample's offset is the stream's, not a wrapped one."""
    length = 3 * 2**30
    domains = {"big": packed(Numbers(0, length), 1024)}
    order = SampleOrder(
        seed=0,
        num_sequences={"big": {1024: length // 1024}},
        phases=[Phase(first_step=0, weights={"big": 1.0}, longest_tokens=1024, batch_tokens=64 * 1024)],
    )
    batch = BatchLoader(order, domains).batch(4 * (length // 1024) // 64)
    assert batch.samples.epoch.max() >= 3
    starts = batch.samples.sequence * 1024
    assert (starts >= 0).all() and (starts > 2**31).any()
    assert np.array_equal(batch.targets[:, 0], starts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two domains in several shards, in which each token but the ends is there once."""
    made, fresh = tmp_path_factory.mktemp("shards"), iter(range(3, 600))
    for domain, shards in {"a": [[1, 30, 7], [], [64, 2]], "b": [[5, 5, 90, 16]]}.items():
        for number, lengths in enumerate(shards):
            documents = [[*(next(fresh) for _ in range(length - 1)), END] for length in lengths]
            write(made / shard_name(domain, number), documents, domain=domain, batch_tokens=20)
    index_folder(made)
    return made


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("kind", ["stream", "best-fit", "length-buckets"])
def test_every_token_is_a_target_once_in_an_epoch(folder: Path, kind: PackingKind, isolate: bool) -> None:
    domains = {
        name: PackedDomain(
            stream,
            make_packing(kind, num_tokens=len(stream), document_lengths=stream.document_lengths, sequence_tokens=16),
        )
        for name, stream in open_streams(folder).items()
    }
    domain = domains["a"]
    pools = domain.packing.num_sequences
    order = SampleOrder(
        seed=1,
        num_sequences={"a": pools},
        phases=[Phase(first_step=0, weights={"a": 1.0}, longest_tokens=16, batch_tokens=32)],
    )
    found: Counter[int] = Counter()
    batches = [BatchLoader(order, domains, isolate=isolate).batch(step) for step in range(40 * sum(pools.values()))]
    for batch in batches:
        for row in range(len(batch.samples)):
            check_row(batch.inputs[row], batch.targets[row], batch.positions[row], isolate, kind == "best-fit")
            if batch.samples.epoch[row] == 0:
                found.update(batch.targets[row][batch.targets[row] != IGNORE].tolist())
    assert found == Counter(domain.stream.read(0, len(domain.stream)).tolist())


def check_row(
    inputs: np.ndarray, targets: np.ndarray, positions: np.ndarray, isolate: bool, has_several_pieces: bool
) -> None:
    """Padding at the end only; positions from 0 in each segment, or in the row."""
    count = int((targets != IGNORE).sum())
    assert count > 0 and (targets[:count] != IGNORE).all()
    assert (inputs[count:] == END).all() and (positions[count:] == 0).all()
    if not isolate:
        assert positions[:count].tolist() == list(range(count))
        return
    assert positions[0] == 0
    for place in range(1, count):
        if inputs[place] == END:
            assert positions[place] == 0
        else:
            begins_a_piece = has_several_pieces and inputs[place] != targets[place - 1]
            assert positions[place] == (0 if begins_a_piece else positions[place - 1] + 1)
