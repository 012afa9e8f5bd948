"""A stage that computes in silence says so in its journal, so that whoever watches it can tell it from one that hangs.

Only CPU time counts, of the process and of those that it has started: what waits for a lock, a disk or another machine
that does not answer uses none, and stays silent.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

import psutil

from stages.journal import Journal

INTERVAL_SECONDS = 60.0
LEAST_SHARE = 0.05  # of one core: what polls alone stays below


class Alive:
    """While it is entered, an `alive` line after each interval in which the journal had no other and a share of a core
    was used, the first two left out. cpu_seconds: the CPU time used so far."""

    def __init__(
        self,
        journal: Journal,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        cpu_seconds: Callable[[], float] | None = None,
    ) -> None:
        self._journal = journal
        self._interval = interval_seconds
        self._cpu_seconds = cpu_seconds or cpu_of_family
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alive", daemon=True)

    def __enter__(self) -> "Alive":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        last, since = self._journal.last, None
        while not self._stop.wait(self._interval):
            if self._journal.last is not last:  # the usual case, in which no process is looked at
                last, since = self._journal.last, None
                continue
            now = self._cpu_seconds(), time.monotonic()
            if since is not None and now[0] - since[0] >= LEAST_SHARE * (now[1] - since[1]):
                with suppress(OSError):  # the stage itself will say that the disk is full
                    self._journal.event("alive", cpu_seconds=round(now[0], 1))
                last = self._journal.last
            since = now


def cpu_of_family() -> float:
    """User and system time of this process and of all its descendants, those that have ended included."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            of_child = process.cpu_times()
            total += of_child.user + of_child.system + of_child.children_user + of_child.children_system
    return total
