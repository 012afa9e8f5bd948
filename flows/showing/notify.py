"""Journal events to Prefect: one log line a second at most, warnings at once, an event for what somebody may wait for,
and how far the stage is.

A journal may have thousands of lines a second. All of them are in its file; what is left out here is counted.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from prefect.logging import get_run_logger

from flows.showing import events
from flows.showing.events import short
from flows.showing.progress import LossChart, Progress
from flows.showing.ui import tolerant

if TYPE_CHECKING:
    from flows.stage_task import Run

LOG_SECONDS = 1.0
LINES_OF_A_RECORD = 20
DIGITS = 5  # of a number in a line
BURST, A_SECOND = 60, 1.0  # warnings, and events of one kind
SUMMED_UP_KINDS = frozenset({"metric", "progress", "alive"})  # only the latest one says anything
UNLOGGED_KINDS = frozenset({"evaluation.regressed"})  # it holds items, and is an event
Clock = Callable[[], float]


class Bucket:
    """So many at once and so many a second; the others are counted."""

    def __init__(self, clock: Clock, burst: int = BURST, a_second: float = A_SECOND) -> None:
        self.left_out = 0
        self._clock, self._burst, self._a_second = clock, burst, a_second
        self._tokens, self._at = float(burst), clock()

    def take(self) -> bool:
        now = self._clock()
        self._tokens = min(self._tokens + (now - self._at) * self._a_second, self._burst)
        self._at = now
        if self._tokens < 1:
            self.left_out += 1
            return False
        self._tokens -= 1
        return True

    def told(self) -> int:
        """How many were left out since the last call."""
        left_out, self.left_out = self.left_out, 0
        return left_out


class Notifier:
    """A journal listener inside a task run, of a flow run and one of its stages; to be entered, so that the last line
    is told, and shown how far the stage got."""

    def __init__(self, run: "Run", stage: str, clock: Clock = time.monotonic) -> None:
        self._run, self._stage, self._clock = run, stage, clock
        self._logger = get_run_logger()
        self._lines: deque[str] = deque(maxlen=LINES_OF_A_RECORD)
        self._latest: dict[str, Any] | None = None
        self._left_out = 0
        self._logged_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._warnings = Bucket(clock)
        self._events: dict[str, Bucket] = {}
        self._progress = Progress(run, stage)
        self._chart = LossChart(run) if stage == "pretrain" else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()
        if left_out := self._warnings.told():
            self._logger.warning("%s: %d more warnings are in its journal", self._stage, left_out)
        for event, bucket in self._events.items():
            if left_out := bucket.told():
                self._logger.warning("%s: %d more events %s are in its journal", self._stage, left_out, event)
        # Of a flow that is being stopped nobody waits for what it shows.
        is_stopped = error is not None and not isinstance(error, Exception)
        await self._progress.close(at_once=is_stopped)
        if self._chart is not None:
            await self._chart.close(at_once=is_stopped)

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind in events.KINDS:
            self._emit(event)
        if kind == "progress":
            self._progress(event)
        elif self._chart is not None:
            self._chart(event)
        if kind == "error":
            self._logger.error("%s", short(event["text"]))
        elif kind == "warning":
            self._warn(event)
        elif kind not in UNLOGGED_KINDS:
            self._log(event)

    def _warn(self, event: dict[str, Any]) -> None:
        if not self._warnings.take():
            return
        left_out = self._warnings.told()
        before = f" ({left_out} warnings before it are only in the journal)" if left_out else ""
        self._logger.warning("%s: %s%s", event["stage"], short(event["text"]), before)

    def _log(self, event: dict[str, Any]) -> None:
        if event["kind"] in SUMMED_UP_KINDS:
            self._latest = event
        else:
            self._left_out += len(self._lines) == self._lines.maxlen
            self._lines.append(line(event))
        wait = self._logged_at + LOG_SECONDS - self._clock()
        if wait <= 0:
            self._flush()
        elif self._timer is None:
            with suppress(RuntimeError):  # no loop: what is left is told at the end
                self._timer = asyncio.get_running_loop().call_later(wait, self._flush)

    def _flush(self) -> None:
        """One record of what has come since the last one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines = [f"{self._left_out:,} lines before these are only in the journal"] if self._left_out else []
        lines += self._lines
        if self._latest is not None:
            lines.append(line(self._latest))
        if lines:
            self._logged_at = self._clock()
            self._logger.info("%s", "\n".join(lines))
        self._lines.clear()
        self._latest, self._left_out = None, 0

    def _emit(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if not self._events.setdefault(kind, Bucket(self._clock)).take():
            return
        with tolerant(f"no event {kind}"):
            events.emit(event, self._run)


def line(event: dict[str, Any]) -> str:
    """An event as one line of a log."""
    fields = (f"{name}={_rounded(value)}" for name, value in event.items() if name not in ("time", "stage", "kind"))
    return short(f"{event['stage']} {event['kind']} {' '.join(fields)}".rstrip())


def _rounded(value: Any) -> Any:
    """Numbers to the digits that say something."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return value
