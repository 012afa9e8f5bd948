"""Batches of training sequences, read ahead of the training step by one thread.

    loader = BatchLoader(order=order, streams=streams, batch_sequences=16, sequence_tokens=256, rows=slice(0, 8))
    with loader.read_ahead(first_step=40, num_steps=60) as batches:
        for batch in batches: ...

Where a run stands is its step and nothing else: what was read ahead and not used is simply read again.
"""

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import numpy as np

from data.order import SampleOrder, Samples

POLL_SECONDS = 0.1


class Stream(Protocol):
    """Anything that holds tokens in order, as `data.shards.TokenStream`."""

    def read(self, start: int, count: int) -> np.ndarray: ...


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One rank's part of a step. inputs, targets: int64[rows, sequence_tokens]; targets are the inputs one token
    later. samples: what they are, [rows].
    """

    step: int
    inputs: np.ndarray
    targets: np.ndarray
    samples: Samples


class BatchLoader:
    """Reads the rows of any step. A pure function of the step; safe to use from several threads."""

    def __init__(
        self,
        *,
        order: SampleOrder,
        streams: Mapping[str, Stream],
        batch_sequences: int,
        sequence_tokens: int,
        rows: slice = slice(None),
    ) -> None:
        """batch_sequences: sequences of a step over all ranks. rows: which of them are this rank's."""
        self._order = order
        self._streams = [streams[domain] for domain in order.domains]
        self._batch_sequences = batch_sequences
        self._sequence_tokens = sequence_tokens
        self._rows = rows

    def batch(self, step: int) -> Batch:
        """This rank's rows of a step."""
        samples = self._order.batch(step=step, batch_sequences=self._batch_sequences)[self._rows]
        tokens = np.empty((len(samples), self._sequence_tokens + 1), dtype=np.int64)
        for row in range(len(samples)):
            start = int(samples.sequence[row]) * self._sequence_tokens
            tokens[row] = self._streams[samples.domain[row]].read(start, self._sequence_tokens + 1)
        return Batch(step=step, inputs=tokens[:, :-1], targets=tokens[:, 1:], samples=samples)

    def read_ahead(self, *, first_step: int, num_steps: int, depth: int = 2) -> "ReadAhead":
        """Batches of first_step, first_step + 1, ...; at most `depth` are held ready."""
        return ReadAhead(self, first_step=first_step, num_steps=num_steps, depth=depth)


class ReadAhead:
    """An iterator over batches with a reading thread. `waited_seconds`: how long its user has waited for data, the
    starvation of training.
    """

    def __init__(self, loader: BatchLoader, *, first_step: int, num_steps: int, depth: int) -> None:
        assert depth > 0, "a queue without room"
        self.waited_seconds = 0.0
        self._loader = loader
        self._steps = range(first_step, first_step + num_steps)
        self._ready: queue.Queue[Batch | BaseException | None] = queue.Queue(maxsize=depth)
        self._closed = threading.Event()
        self._finished = False
        self._thread = threading.Thread(target=self._read, name="batch reader", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch. An error of the reading thread is raised here, at the batch that it belongs to."""
        if self._finished:
            raise StopIteration
        started = time.perf_counter()
        item = self._ready.get()
        self.waited_seconds += time.perf_counter() - started
        if isinstance(item, Batch):
            return item
        self._finished = True
        if item is None:
            raise StopIteration
        raise item

    def close(self) -> None:
        """End the thread. What it has read and nobody took is dropped."""
        self._closed.set()
        self._finished = True
        self._thread.join()

    def __enter__(self) -> "ReadAhead":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        try:
            for step in self._steps:
                if not self._put(self._loader.batch(step)):
                    return
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _put(self, item: Batch | BaseException | None) -> bool:
        """Wait for room. False once nobody reads any more."""
        while not self._closed.is_set():
            try:
                self._ready.put(item, timeout=POLL_SECONDS)
                return True
            except queue.Full:
                continue
        return False
