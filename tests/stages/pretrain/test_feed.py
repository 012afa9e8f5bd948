"""A user relies on: however a batch is cut up, and however short its rows, each row is computed once and every rank
makes as many forward passes.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from data.loader import IGNORE, Batch
from data.order import rank_rows
from stages.pretrain.feed import Feed, Rows

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
    )


def fed(batch: Batch, world_size: int, *, batch_tokens: int, micro_batch_tokens: int) -> tuple[Rows, ...]:
    feed = Feed(device=CPU, batch_tokens=batch_tokens, micro_batch_tokens=micro_batch_tokens, world_size=world_size)
    return feed.place(batch).micro_batches


@pytest.mark.parametrize(("num_rows", "length"), [(10, 8), (40, 2), (80, 1)])
@pytest.mark.parametrize("world_size", [1, 3, 4, 7])
def test_every_rank_makes_as_many_micro_batches_and_each_row_is_seen_once(
    world_size: int, num_rows: int, length: int
) -> None:
    seen: list[int] = []
    counts = set()
    for rank in range(world_size):
        batch = part(rank, world_size, num_rows=num_rows, length=length)
        pieces = fed(batch, world_size, batch_tokens=80, micro_batch_tokens=16)
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
    pieces = fed(part(0, 1, num_rows=3, length=8), 1, batch_tokens=24, micro_batch_tokens=4)
    assert [len(rows.inputs) for rows in pieces] == [1, 1, 1]


def test_batches_come_in_their_order_with_their_counts() -> None:
    feed = Feed(device=CPU, batch_tokens=24, micro_batch_tokens=8, world_size=1)
    found = list(feed.ahead(part(0, 1, num_rows=3, length=8) for _ in range(3)))
    assert [(batch.step, batch.num_targets, len(batch.micro_batches)) for batch in found] == [(3, 24, 3)] * 3
