"""A user relies on: whatever the ranks, the read-ahead and the restarts, a run is trained on the same sequences in the
same order.
"""

import threading
import time
from collections import Counter

import numpy as np
import pytest

from data.loader import BatchLoader
from data.order import SampleOrder

LENGTHS = {"prose": 20 * 5 + 1, "code": 7 * 5 + 4}
SEQUENCES = {"prose": 20, "code": 7}


class Numbers:
    """A stream whose token i is base + i; `delay_seconds` for each read, an error at `fails_at`."""

    def __init__(self, base: int, length: int, delay_seconds: float = 0, fails_at: int = -1) -> None:
        self.base, self.length, self.delay_seconds, self.fails_at = base, length, delay_seconds, fails_at

    def read(self, start: int, count: int) -> np.ndarray:
        assert start >= 0 and start + count <= self.length
        time.sleep(self.delay_seconds)
        if start == self.fails_at:
            raise OSError("the disk is gone")
        return np.arange(self.base + start, self.base + start + count, dtype=np.uint32)


def loader(rows: slice = slice(None), batch_sequences: int = 4, **stream: float) -> BatchLoader:
    order = SampleOrder(seed=3, weights={"prose": 0.7, "code": 0.3}, num_sequences=SEQUENCES)
    # type: ignore[arg-type]
    streams = {"prose": Numbers(0, LENGTHS["prose"], **stream), "code": Numbers(100_000, LENGTHS["code"])}
    return BatchLoader(order=order, streams=streams, batch_sequences=batch_sequences, sequence_tokens=5, rows=rows)


def firsts(batches: object) -> list[int]:
    """The first token of each row, which names the sequence."""
    return [int(row[0]) for batch in batches for row in batch.inputs]  # type: ignore[attr-defined]


def test_rows_are_the_orders_sequences_and_targets_are_one_further() -> None:
    batch = loader().batch(6)
    assert batch.inputs.dtype == batch.targets.dtype == np.int64 and batch.inputs.shape == batch.targets.shape == (4, 5)
    base = np.array([100_000, 0])[batch.samples.domain]
    assert np.array_equal(batch.inputs, (base + batch.samples.sequence * 5)[:, None] + np.arange(5))
    assert np.array_equal(batch.targets, batch.inputs + 1)


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_ranks_are_disjoint_and_together_whole(num_ranks: int) -> None:
    size = 4 // num_ranks
    for step in range(12):
        parts = [loader(rows=slice(rank * size, rank * size + size)).batch(step).inputs for rank in range(num_ranks)]
        assert np.array_equal(np.concatenate(parts), loader().batch(step).inputs)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_stopping_at_any_step_and_going_on_gives_the_undisturbed_run(depth: int) -> None:
    """Batches were read ahead at each stop; whoever goes on begins from the step alone. One stop comes before any
    batch.
    """
    with loader().read_ahead(first_step=0, num_steps=25, depth=depth) as batches:
        whole = firsts(batches)
    found: list[int] = []
    step = 0
    for stop_after in (7, 3, 0, 5, 10):
        with loader().read_ahead(first_step=step, num_steps=25 - step, depth=depth) as batches:
            for _ in range(stop_after):
                found += firsts([next(batches)])
                step += 1
    assert found == whole


def test_epochs_after_a_resume_are_whole() -> None:
    with loader(batch_sequences=3).read_ahead(first_step=25, num_steps=200) as batches:
        rows = [
            (int(d), int(s), int(e))
            for b in batches
            for d, s, e in zip(b.samples.domain, b.samples.sequence, b.samples.epoch, strict=True)
        ]
    counts = Counter((domain, epoch) for domain, _, epoch in rows)
    for domain, name in enumerate(("code", "prose")):
        epochs = sorted(epoch for d, epoch in counts if d == domain)
        assert len(epochs) > 5
        for epoch in epochs[1:-1]:
            assert sorted(s for d, s, e in rows if (d, e) == (domain, epoch)) == list(range(SEQUENCES[name]))


def test_domains_are_mixed_as_asked() -> None:
    domains = np.concatenate([loader().batch(step).samples.domain for step in range(50)])
    assert abs((domains == 1).sum() - 0.7 * 200) <= 1


def test_the_end_is_an_end_each_time_it_is_asked() -> None:
    batches = loader().read_ahead(first_step=0, num_steps=1)
    next(batches)
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(batches)
    batches.close()


def test_an_error_while_reading_ahead_surfaces_at_its_batch() -> None:
    samples = loader().batch(0).samples
    broken = next(s for s in range(1, 30) if (loader().batch(s).samples.domain == 1).any())
    place = int(loader().batch(broken).samples.sequence[loader().batch(broken).samples.domain == 1][0]) * 5
    first = next(
        s for s in range(30) if place in (loader().batch(s).samples.sequence[loader().batch(s).samples.domain == 1] * 5)
    )
    assert len(samples) == 4
    with loader(fails_at=place).read_ahead(first_step=0, num_steps=30, depth=2) as batches:
        for _ in range(first):
            next(batches)
        with pytest.raises(OSError, match="disk is gone"):
            next(batches)
        with pytest.raises(StopIteration):
            next(batches)


def test_read_ahead_is_bounded_and_its_thread_ends() -> None:
    before = threading.active_count()
    with loader().read_ahead(first_step=0, num_steps=10**9, depth=3) as batches:
        next(batches)
        time.sleep(0.05)
        assert batches._ready.qsize() <= 3
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_waiting_for_data_is_measured() -> None:
    with loader(delay_seconds=0.02).read_ahead(first_step=0, num_steps=3) as slow:
        list(slow)
    with loader().read_ahead(first_step=0, num_steps=3, depth=3) as fast:
        time.sleep(0.05)
        list(fast)
    assert slow.waited_seconds > 0.05 > 10 * fast.waited_seconds


def test_offsets_beyond_32_bits() -> None:
    """Three documents of 2**30 tokens, several epochs: the last sample's offset is the stream's, not a wrapped one."""
    length = 3 * 2**30
    order = SampleOrder(seed=0, weights={"big": 1.0}, num_sequences={"big": (length - 1) // 1024})
    stream = Numbers(0, length)
    reader = BatchLoader(order=order, streams={"big": stream}, batch_sequences=64, sequence_tokens=1024)
    last_step = 4 * ((length - 1) // 1024) // 64
    batch = reader.batch(last_step)
    assert batch.samples.epoch.max() >= 3
    starts = batch.samples.sequence * 1024
    assert (starts >= 0).all() and (starts > 2**31).any()
    assert np.array_equal(batch.inputs[:, 0], starts)
