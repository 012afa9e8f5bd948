"""From the batches of the loader to micro-batches on the device.

On a GPU the next batch is copied while the device computes on this one: from pinned memory, on a stream of its own, and
computing waits for the copies of its own batch only. On a CPU there is nothing to copy.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from data.order.batches import Samples
from data.order.loader import IGNORE, Batch

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Rows:
    """One micro-batch. inputs, targets: int64[rows, length]; positions: int32[rows, length]; borders: int32[segments +
    1], the places, counted through all rows, at which one begins, and their number."""

    inputs: "torch.Tensor"
    targets: "torch.Tensor"
    positions: "torch.Tensor"
    borders: "torch.Tensor"

    def each(self, change: "Callable[[torch.Tensor], torch.Tensor]") -> "Rows":
        """The same with every tensor changed."""
        return Rows(**{field.name: change(getattr(self, field.name)) for field in fields(self)})


@dataclass(frozen=True, kw_only=True)
class Fed:
    """This rank's part of a step, on its device. step: as the batch counts it, from 0; samples: what this rank's rows
    are; num_targets: of this rank; places: for tokens in the whole batch, of all ranks, padding among them."""

    step: int
    samples: Samples
    num_targets: int
    places: int
    micro_batches: tuple[Rows, ...]


@dataclass(frozen=True)
class _Sent:
    """A batch on its way to a GPU, and what happens there when it has arrived."""

    fed: Fed
    arrived: "torch.cuda.Event"


class Feed:
    """Cuts batches up and brings them to the device.

    Every rank gets as many micro-batches of a step as the rank with most rows needs, since a forward pass of a sharded
    model is a collective operation: where rows run out, one row without targets stands in, which adds nothing to the
    loss or its gradient.
    """

    def __init__(self, *, device: "torch.device", micro_batch_tokens: int, world_size: int) -> None:
        """micro_batch_tokens: most places in one micro-batch."""
        import torch

        self._device = device
        self._micro_batch_tokens = micro_batch_tokens
        self._world_size = world_size
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None

    def place(self, batch: Batch) -> Fed:
        """A batch on the device, ready for use."""
        return self._fed(batch) if self._copies is None else self._ready(self._send(batch, self._copies))

    def ahead(self, batches: Iterable[Batch]) -> Iterator[Fed]:
        """Batches on the device, in their order; where copies take time, each is sent before the one before it is
        handed out."""
        if self._copies is None:
            yield from map(self._fed, batches)
            return
        sent: _Sent | None = None
        for batch in batches:
            following = self._send(batch, self._copies)
            if sent is not None:
                yield self._ready(sent)
            sent = following
        if sent is not None:
            yield self._ready(sent)

    def _fed(self, batch: Batch) -> Fed:
        return Fed(
            step=batch.step,
            samples=batch.samples,
            num_targets=batch.num_targets,
            places=batch.whole_rows * batch.inputs.shape[1],
            micro_batches=tuple(self._cut(batch)),
        )

    def _send(self, batch: Batch, copies: "torch.cuda.Stream") -> _Sent:
        """Begin to copy a batch; the host does not wait."""
        import torch

        fed = self._fed(batch)
        arrived = torch.cuda.Event()
        with torch.cuda.stream(copies):
            rows = tuple(
                rows.each(lambda tensor: tensor.pin_memory().to(self._device, non_blocking=True))
                for rows in fed.micro_batches
            )
            arrived.record(copies)
        return _Sent(replace(fed, micro_batches=rows), arrived)

    def _ready(self, sent: _Sent) -> Fed:
        """A batch for the stream that computes; that one waits until it has arrived, and the host does not."""
        import torch

        current = torch.cuda.current_stream(self._device)
        current.wait_event(sent.arrived)
        for rows in sent.fed.micro_batches:
            for tensor in (rows.inputs, rows.targets, rows.positions, rows.borders):
                tensor.record_stream(current)
        return sent.fed

    def _cut(self, batch: Batch) -> Iterator[Rows]:
        """Micro-batches on the host."""
        import torch

        length = batch.inputs.shape[1]
        most_rows = -(-batch.whole_rows // self._world_size)
        size = max(1, self._micro_batch_tokens // length)
        for start in range(0, most_rows, size):
            part = slice(start, start + size)
            inputs, targets, positions = batch.inputs[part], batch.targets[part], batch.positions[part]
            if not len(inputs):
                inputs, targets = np.zeros((1, length), np.int64), np.full((1, length), IGNORE, np.int64)
                positions = np.arange(length, dtype=np.int32)[None]
            borders = np.append(np.flatnonzero(positions == 0), positions.size).astype(np.int32)
            yield Rows(
                inputs=torch.from_numpy(inputs),
                targets=torch.from_numpy(targets),
                positions=torch.from_numpy(positions),
                borders=torch.from_numpy(borders),
            )
