"""An evaluation beside a training of the same store: it waits between batches where it costs the training its pace.

The training says in timing.jsonl of its run directory how long each step took. Steps that end while the evaluation
waits tell how fast the training is alone, all others what it loses. The evaluation goes on while the training has lost
no more than the share that it may (`most_slowdown`), counted over all steps since the evaluation began; and it always
gets at least a twentieth of the time, so that it comes to its end however slow the machine is.
"""

import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages.evaluate.config import EvaluateConfig
from stages.journal import Journal
from stages.pretrain.job import RunDirectory
from stages.pretrain.monitor.tail import Appended
from stages.store import Store

LEAST_SHARE = 0.05
WINDOW_STEPS = 64  # the training's own pace changes over hours, and not within so many steps
PROBE_STEPS = 8
PROBE_SECONDS = 3.0
PROBE_EVERY_SECONDS = 60.0
# A step in which the training saved a checkpoint takes many times as long: that is not the evaluation's doing.
MOST_TIMES_SLOWER = 10.0
LOOK_SECONDS = 0.05
LAST_BYTES = 1 << 16
LOOK_FOR_TRAININGS_SECONDS = 2.0
LOOKS_BETWEEN_LINES = 30

Clock = Callable[[], float]


class Account:
    """What one training has lost. before: seconds of its last steps before the evaluation began."""

    def __init__(self, most_slowdown: float, before: Sequence[float] = ()) -> None:
        self._most = most_slowdown
        self._alone: deque[float] = deque(before, WINDOW_STEPS)
        self._measured = 0
        self._total = self._lost = 0.0

    def add(self, seconds: Iterable[float], *, beside: bool) -> None:
        """Steps that have ended: beside a batch of the evaluation, or while it waited."""
        for each in seconds:
            self._total += each
            if not beside:
                self._measured += 1
                if self._measured == PROBE_STEPS:  # enough to do without those of the time before
                    self._alone = deque(list(self._alone)[-(PROBE_STEPS - 1) :], WINDOW_STEPS)
                self._alone.append(each)
            elif self._alone:
                alone = statistics.median(self._alone)
                self._lost += min(each, MOST_TIMES_SLOWER * alone) - alone

    @property
    def slowdown(self) -> float:
        """Time lost as a share of the time that the steps would have taken alone."""
        return max(self._lost, 0.0) / (self._total - self._lost) if self._total > self._lost else 0.0

    @property
    def is_blind(self) -> bool:
        """Steps have ended, and none of them says how fast the training is alone."""
        return self._total > 0 and not self._alone

    @property
    def is_over(self) -> bool:
        return self.slowdown > self._most


class Steps:
    """Seconds of the steps that a training appends to `path`."""

    def __init__(self, path: Path) -> None:
        self._lines = Appended(path, last_bytes=LAST_BYTES)
        self.before = self.new()[-WINDOW_STEPS:]

    def new(self) -> list[float]:
        """Of the steps that have ended since the last call."""
        return [line["seconds"] for line in self._lines.lines()]


class Governor:
    """Called between batches; returns when the next one may begin. What has slowed a training since this was made
    counts, so make it before anything is loaded.

    trainings: run directory of each training that goes on, by key. `clock` and `sleep` in seconds.
    """

    def __init__(
        self,
        trainings: Callable[[], Mapping[str, RunDirectory]],
        *,
        most_slowdown: float,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._find = trainings
        self._most = most_slowdown
        self._clock, self._sleep = clock, sleep
        self._watched: dict[str, tuple[Steps, Account]] = {}
        self._looked_at = self._probed_at = float("-inf")
        self._since = clock()
        self._busy = 0.0
        self.waited_seconds = 0.0
        self.slowdown = 0.0
        self._look(self._since)

    def __call__(self) -> None:
        now = self._clock()
        self._busy += now - self._since
        self._look(now)
        for steps, account in self._watched.values():
            account.add(steps.new(), beside=True)
        if self._watched and now - self._probed_at >= PROBE_EVERY_SECONDS:
            self._probed_at = now
            self._wait(lambda clean, waited: clean < PROBE_STEPS and waited < PROBE_SECONDS)
        self._wait(lambda clean, waited: self._may_wait() and self._has_to_wait())
        self.slowdown = max((account.slowdown for _, account in self._watched.values()), default=self.slowdown)
        self._since = self._clock()

    def _wait(self, goes_on: Callable[[int, float], bool]) -> None:
        """While `goes_on(clean steps, seconds waited)`. The first step of each training that ends meanwhile began
        beside a batch."""
        began = last = self._clock()
        mixed, clean = set(self._watched), 0
        while self._watched and goes_on(clean, last - began):
            self._sleep(LOOK_SECONDS)
            now = self._clock()
            self.waited_seconds += now - last
            last = now
            for key, (steps, account) in self._watched.items():
                new = steps.new()
                first = 1 if new and key in mixed else 0
                mixed -= {key} if new else set()
                account.add(new[:first], beside=True)
                account.add(new[first:], beside=False)
                clean += len(new) - first
            self._look(now)

    def _look(self, now: float) -> None:
        """Which trainings go on; seldom, since a training lasts."""
        if now - self._looked_at < LOOK_FOR_TRAININGS_SECONDS:
            return
        self._looked_at = now
        running = self._find()
        for key in self._watched.keys() - running.keys():
            del self._watched[key]
        for key in running.keys() - self._watched.keys():
            steps = Steps(running[key].timing)
            self._watched[key] = steps, Account(self._most, steps.before)

    def _has_to_wait(self) -> bool:
        return any(account.is_over or account.is_blind for _, account in self._watched.values())

    def _may_wait(self) -> bool:
        return self.waited_seconds < self._busy * (1 / LEAST_SHARE - 1)


def running_trainings(store: Store) -> dict[str, RunDirectory]:
    """The trainings of a store that live processes build now, by key."""
    return {key: RunDirectory(store.runs_path(key)) for key in store.being_built("pretrain")}


def take_place(
    config: EvaluateConfig, store: Store, journal: Journal, sleep: Callable[[float], None] = time.sleep
) -> None:
    """What this process takes of the machine, and when. With `beside = "queue"` returns once no training of the store
    goes on. Raises InputError for CPUs that are not there."""
    if config.nice:
        os.nice(config.nice)
    if config.cpus:
        try:
            os.sched_setaffinity(0, config.cpus)
        except (AttributeError, OSError, ValueError):  # the first where the system has no such thing
            here = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "[]"
            raise InputError(f"evaluate.cpus: not {list(config.cpus)}; this process can be kept on {here}") from None
    if config.beside == "queue" and (before := running_trainings(store)):
        journal.event("note", text=f"waits for the end of the training {', '.join(before)} (evaluate.beside)")
        looks = 0
        while before := running_trainings(store):
            sleep(LOOK_FOR_TRAININGS_SECONDS)
            looks += 1
            if looks % LOOKS_BETWEEN_LINES == 0:
                journal.event("alive", waits_for=list(before))


def governor(config: EvaluateConfig, store: Store) -> Governor:
    """For an evaluation of this store."""
    return Governor(lambda: running_trainings(store), most_slowdown=config.most_slowdown)


def measured(found: Governor) -> dict[str, Any]:
    """For the measurements of the artifact."""
    return {"waited_seconds": round(found.waited_seconds, 3), "training_slowdown": round(found.slowdown, 4)}
