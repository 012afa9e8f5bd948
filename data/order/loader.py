"""Batches of training sequences, made ahead of the training step by background threads.

    domains = {"prose": PackedDomain(streams["prose"], StreamPacking(...)), ...}
    loader = BatchLoader(order, domains, rank=0, world_size=2)
    with loader.read_ahead(first_step=40, num_steps=60) as batches:
        for batch in batches: ...

Where a run stands is its step and nothing else: what was read ahead and not used is simply read again.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from data.order.batches import SampleOrder, Samples, rank_rows
from data.order.gather import IGNORE
from data.order.packing import Packing, Pieces
from data.shards.streams import TokenStream

__all__ = ["IGNORE", "Batch", "BatchLoader", "PackedDomain", "ReadAhead"]


@dataclass(frozen=True)
class PackedDomain:
    """The tokens of a domain, and which of them stand in which of its sequences."""

    stream: TokenStream
    packing: Packing


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One rank's part of a step, counted from 0. Arrays of one shape [rows, length], which may have no row.

    inputs, targets: int64; a target is the token behind its input, or IGNORE in padding. positions: int32, from 0 in
    each segment, or in the row if segments are not isolated. samples: what the rows are, [rows]. num_targets: how many
    there are, padding left out. whole_rows: those of all ranks together.
    """

    step: int
    inputs: np.ndarray
    targets: np.ndarray
    positions: np.ndarray
    samples: Samples
    num_targets: int
    whole_rows: int


class BatchLoader:
    """Makes one rank's part of any step. A pure function of the step; safe to use from several threads."""

    def __init__(
        self,
        order: SampleOrder,
        domains: Mapping[str, PackedDomain],
        *,
        rank: int = 0,
        world_size: int = 1,
        isolate: bool = True,
    ) -> None:
        """isolate: whether positions start anew in each segment, as attention that is kept to segments needs."""
        self._order = order
        self._domains = [domains[domain] for domain in order.domains]
        self._rank = rank
        self._world_size = world_size
        self._isolate = isolate

    def batch(self, step: int) -> Batch:
        """This rank's rows of a step. Raises InputError if a shard cannot be used."""
        whole = self._order.batch(step)
        samples = whole[rank_rows(len(whole), self._rank, self._world_size)]
        shape = (len(samples), samples.length)
        inputs, targets = np.empty(shape, np.int64), np.empty(shape, np.int64)
        positions = np.empty(shape, np.int32)
        num_targets = 0
        for index, domain in enumerate(self._domains):
            rows = np.flatnonzero(samples.domain == index) if len(self._domains) > 1 else np.arange(len(samples))
            if not len(rows):
                continue
            found = domain.packing.pieces(samples.length, samples.sequence[rows])
            pieces = Pieces(row=rows[found.row], start=found.start, length=found.length)
            domain.stream.fill(pieces, inputs, targets, positions, isolate=self._isolate)
            num_targets += int(found.length.sum())
        return Batch(
            step=step,
            inputs=inputs,
            targets=targets,
            positions=positions,
            samples=samples,
            num_targets=num_targets,
            whole_rows=len(whole),
        )

    def read_ahead(self, *, first_step: int, num_steps: int, depth: int = 2, readers: int = 1) -> "ReadAhead":
        """Batches of first_step, first_step + 1, ..., made by `readers` threads, at most `depth` ahead of their use."""
        return ReadAhead(self, first_step=first_step, num_steps=num_steps, depth=depth, readers=readers)


class ReadAhead:
    """An iterator over batches in the order of their steps. waited_seconds: how long its user has waited for data,
    which is what starves training.
    """

    def __init__(self, loader: BatchLoader, *, first_step: int, num_steps: int, depth: int, readers: int) -> None:
        assert depth > 0 and readers > 0, f"{readers} threads that read {depth} batches ahead"
        self.waited_seconds = 0.0
        self._loader = loader
        self._next_read = self._next_given = first_step
        self._end = first_step + num_steps
        self._depth = depth
        self._ready: dict[int, Batch | BaseException] = {}
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._read, name=f"batch reader {number}", daemon=True) for number in range(readers)
        ]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch. An error while it was made is raised here, at its place, and nothing follows it."""
        with self._changed:
            if self._closed or self._next_given == self._end:
                raise StopIteration
            if self._next_given not in self._ready:
                started = time.perf_counter()
                self._changed.wait_for(lambda: self._closed or self._next_given in self._ready)
                self.waited_seconds += time.perf_counter() - started
                if self._closed:
                    raise StopIteration
            found = self._ready.pop(self._next_given)
            self._next_given += 1
            self._closed = not isinstance(found, Batch)
            self._changed.notify_all()
        if isinstance(found, Batch):
            return found
        raise found

    def close(self) -> None:
        """End the threads. What they have read and nobody took is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._ready.clear()

    def __enter__(self) -> "ReadAhead":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        while (step := self._take()) is not None:
            found: Batch | BaseException
            try:
                found = self._loader.batch(step)
            except BaseException as error:
                found = error
            with self._changed:
                self._ready[step] = found
                self._changed.notify_all()

    def _take(self) -> int | None:
        """The next step to read, once there is room for its batch; None if there is nothing more to read."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._next_read == self._end or self._next_read < self._next_given + self._depth
            )
            if self._closed or self._next_read == self._end:
                return None
            step = self._next_read
            self._next_read += 1
            return step
