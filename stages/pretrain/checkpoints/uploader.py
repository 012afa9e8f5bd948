"""The thread that keeps the durable store as it should be: what `retention` keeps is there, and nothing else.

A store that is slow, down or silent delays this thread and nobody else. What it has to tell is put into a queue, and
what went wrong for good is raised where the run ends.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stages.pretrain.checkpoints.durable import DurableStore, NotYet
from stages.pretrain.checkpoints.index import Published
from stages.pretrain.checkpoints.remote_files import Stopped, Tell
from stages.pretrain.checkpoints.retention import kept

NOT_YET_SECONDS = 5.0


@dataclass(frozen=True)
class Offer:
    """A published checkpoint that lies in `folder` on this machine."""

    folder: Path
    made: Published


class Uploader:
    """Begins with `start`; `offer` and the rest may be called from the thread of the supervisor."""

    def __init__(
        self,
        store: DurableStore,
        *,
        durable_steps: tuple[int, ...],
        newest: int,
        keep_every: int | None,
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """newest, keep_every: see `retention.kept`. tell(kind, **fields): from the thread of this uploader."""
        self.error: Exception | None = None
        self._store = store
        self._durable_steps = durable_steps
        self._newest, self._keep_every = newest, keep_every
        self._tell, self._clock = tell, clock
        self._offers: dict[int, Offer] = {}
        self._losses: dict[int, float] = {}
        self._recorded: set[int] = set()
        self._there: set[int] | None = None  # None: not looked at yet
        self._damaged: set[int] = set()  # among those
        self._partial: set[int] = set()  # beside those
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="uploader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, folder: Path, made: Published) -> None:
        """This checkpoint has been published, and is to be sent if it is to be kept."""
        self.know(made)
        self._offers[made.step] = Offer(folder, made)
        self._changed.set()

    def know(self, made: Published) -> None:
        """This checkpoint has been published, here or elsewhere."""
        if made.facts["heldout_loss"] is not None:
            self._losses[made.step] = made.facts["heldout_loss"]

    def distrust(self, step: int) -> None:
        """What is there of this checkpoint cannot be used. It is sent again as soon as it is published here."""
        self._damaged.add(step)

    def missing(self) -> list[int]:
        """Steps that are to be kept and are not there yet; the newest first."""
        there = (self._there or set()) - self._damaged
        return [step for step in sorted(self._wanted(), reverse=True) if step in self._offers and step not in there]

    def unrecorded(self) -> list[int]:
        """Steps of which the store does not know what they were published as: it is to know it of all, as a run cannot
        come to its end on another machine without."""
        return [step for step in list(self._offers) if step not in self._recorded]

    def extra(self) -> list[int]:
        """Steps of which something is there, and that are not to be kept."""
        return sorted({*(self._there or ()), *list(self._partial)} - self._wanted())

    def close(self) -> None:
        """End, at the latest when the call that is under way has come back or is given up; nothing of what was sent is
        lost."""
        self._store.files.stop.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _wanted(self) -> set[int]:
        steps = {*list(self._offers), *(self._there or ())}
        return kept(
            steps,
            newest=self._newest,
            losses=dict(self._losses),
            healthy=steps,
            durable=self._durable_steps,
            keep_every=self._keep_every,
        )

    def _run(self) -> None:
        try:
            self._store.begin(patience_seconds=None)
            for step, made in self._store.published().items():
                self._recorded.add(step)
                self.know(made)
            there = {*self._store.complete()}
            self._store.tidy(there)
            self._partial = self._store.begun() - there
            self._there = there
            while True:
                self._changed.clear()
                if self._store.files.stop.is_set():  # looked at behind the clearing, or `close` could be missed
                    return
                if unrecorded := self.unrecorded():
                    self._store.record(self._offers[unrecorded[0]].made)
                    self._recorded.add(unrecorded[0])
                elif missing := self.missing():
                    try:
                        self._send(missing[0])
                    except NotYet:
                        self._changed.wait(NOT_YET_SECONDS)
                elif extra := self.extra():
                    self._remove(extra[0])
                else:
                    self._changed.wait()
        except Stopped:
            return
        except Exception as error:
            self.error = error
            self._tell("warning", text=f"checkpoints are no longer copied to {self._store.files.url}: {error}")

    def _send(self, step: int) -> None:
        assert self._there is not None, "the store has not been looked at"
        began, sent, offer = self._clock(), [0], self._offers[step]

        def count(num_bytes: int) -> None:
            sent[0] += num_bytes

        index = self._store.upload(offer.folder, count)
        self._there = self._there | {step}
        self._damaged.discard(step)
        self._partial.discard(step)
        self._tell(
            "checkpoint.uploaded",
            step=step,
            url=self._store.files.url,
            bytes=index.bytes,
            sent_bytes=sent[0],
            seconds=round(self._clock() - began, 3),
            kept=sorted(self._there),
        )

    def _remove(self, step: int) -> None:
        assert self._there is not None, "the store has not been looked at"
        self._store.remove(step)
        self._there = self._there - {step}
        self._partial.discard(step)
        self._tell("checkpoint.removed", step=step, url=self._store.files.url)
