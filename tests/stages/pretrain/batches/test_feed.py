"""A user relies on: however a batch is cut up, and however short its rows, each row is computed once and every rank
makes as many forward passes.
"""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from data.order.batches import rank_rows
from data.order.loader import IGNORE, Batch
from stages.pretrain.batches.feed import Feed, Rows

CPU = torch.device("cpu")


def part(rank: int, world_size: int, *, num_rows: int, length: int) -> Batch:
    """A rank's rows of a batch whose row r holds the number r; its targets r + 1."""
    mine = np.arange(num_rows)[rank_rows(num_rows, rank, world_size)]
    inputs = np.repeat(mine[:, None], length, axis=1)
    positions = np.tile(np.arange(length, dtype=np.int32), (len(mine), 1))
    return Batch(
        step=3,
        inputs=inputs,
        targets=inputs + 1,
        positions=positions,
        samples=SimpleNamespace(length=length),  # type: ignore[arg-type]
        num_targets=inputs.size,
        whole_rows=num_rows,
    )


def fed(batch: Batch, world_size: int, *, micro_batch_tokens: int) -> tuple[Rows, ...]:
    found = Feed(device=CPU, micro_batch_tokens=micro_batch_tokens, world_size=world_size).place(batch)
    assert found.places == batch.whole_rows * batch.inputs.shape[1]
    return found.micro_batches


@pytest.mark.parametrize(("num_rows", "length"), [(10, 8), (40, 2), (80, 1)])
@pytest.mark.parametrize("world_size", [1, 3, 4, 7])
def test_every_rank_makes_as_many_micro_batches_and_each_row_is_seen_once(
    world_size: int, num_rows: int, length: int
) -> None:
    seen: list[int] = []
    counts = set()
    for rank in range(world_size):
        batch = part(rank, world_size, num_rows=num_rows, length=length)
        pieces = fed(batch, world_size, micro_batch_tokens=16)
        counts.add(len(pieces))
        for rows in pieces:
            assert rows.inputs.shape == rows.targets.shape == rows.positions.shape
            assert rows.inputs.numel() <= 16, "shorter rows fill a micro-batch with as many tokens, and no more"
            real = rows.targets[:, 0] != IGNORE
            seen += rows.inputs[real][:, 0].tolist()
            assert (rows.targets[real] == rows.inputs[real] + 1).all()
            assert (rows.positions == torch.arange(length)).all()
    assert counts == {math.ceil(math.ceil(num_rows / world_size) / (16 // length))}
    assert sorted(seen) == list(range(num_rows))


def test_a_row_that_is_longer_than_a_micro_batch_stands_alone() -> None:
    pieces = fed(part(0, 1, num_rows=3, length=8), 1, micro_batch_tokens=4)
    assert [len(rows.inputs) for rows in pieces] == [1, 1, 1]


def test_micro_batches_say_where_their_segments_begin() -> None:
    whole = part(0, 1, num_rows=3, length=8)
    positions = whole.positions.copy()
    positions[1, 5:] -= 5
    batch = dataclasses.replace(whole, positions=positions)
    first, second = fed(batch, 1, micro_batch_tokens=16)
    assert first.borders.tolist() == [0, 8, 13, 16] and second.borders.tolist() == [0, 8]
    assert first.borders.dtype == torch.int32
    (*_, stand_in) = fed(part(2, 3, num_rows=4, length=8), 3, micro_batch_tokens=8)
    assert stand_in.borders.tolist() == [0, 8]


def numbered(step: int) -> Batch:
    """A batch of step rows for step 3, 4, ..., and so with as many targets more."""
    return dataclasses.replace(part(0, 1, num_rows=step, length=8), step=step)


def test_batches_come_in_their_order_with_their_counts() -> None:
    feed = Feed(device=CPU, micro_batch_tokens=16, world_size=1)
    found = list(feed.ahead(numbered(step) for step in (3, 4, 5)))
    assert [(fed.step, fed.num_targets, int(fed.micro_batches[0].inputs.sum())) for fed in found] == [
        (3, 24, 8), (4, 32, 8), (5, 40, 8)
    ]  # fmt: skip
    assert [sum(int((rows.targets != IGNORE).sum()) for rows in fed.micro_batches) for fed in found] == [24, 32, 40]


class FakeGpu:
    """Streams and events that put down the order of what they are asked to do; tensors stay where they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.num_events = 0
        gpu = self

        class Event:
            def __init__(self) -> None:
                self.number, gpu.num_events = gpu.num_events, gpu.num_events + 1

            def record(self, stream: Any) -> None:
                assert stream is gpu.copies
                gpu.calls.append(("copied", self.number))

        class Stream:
            def wait_event(self, event: Event) -> None:
                assert self is gpu.computes
                gpu.calls.append(("waits for", event.number))

        self.copies, self.computes = Stream(), Stream()
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: self.copies)
        monkeypatch.setattr(torch.cuda, "stream", self.on)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.computes)
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
        monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device, non_blocking: tensor)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: self.used(stream))

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        assert stream is self.copies
        yield

    def used(self, stream: Any) -> None:
        """Memory is not given to others before the stream that computes is done with it."""
        assert stream is self.computes
        self.calls.append(("keeps", None))


def test_computing_on_a_batch_waits_for_its_own_copies_while_the_next_one_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = FakeGpu(monkeypatch)
    feed = Feed(device=torch.device("cuda"), micro_batch_tokens=40, world_size=1)
    for fed in feed.ahead(numbered(step) for step in (3, 4, 5)):
        gpu.calls.append(("computes", fed.step))
    keeps = [("keeps", None)] * 4  # inputs, targets, positions, borders
    assert gpu.calls == [
        ("copied", 0), ("copied", 1), ("waits for", 0), *keeps, ("computes", 3),
        ("copied", 2), ("waits for", 1), *keeps, ("computes", 4),
        ("waits for", 2), *keeps, ("computes", 5),
    ]  # fmt: skip
