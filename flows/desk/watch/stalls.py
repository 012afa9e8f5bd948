"""Which runs seem to stand still: alive, and without a log line, an event or a change of state for long. Each stall is
told once."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Active:
    """A run that works. last: when something was last heard of it, beside heartbeats, Unix seconds."""

    id: str
    name: str
    last: float


class Stalls:
    """Looks again and again. `now`: Unix seconds."""

    def __init__(self, stalled_after_seconds: float) -> None:
        self._after_seconds = stalled_after_seconds
        self._told: dict[str, float] = {}

    def look(self, runs: Sequence[Active], now: float) -> list[Active]:
        """Runs that have stalled since the last look."""
        self._told = {run.id: run.last for run in runs if self._told.get(run.id) == run.last}
        stalled = [run for run in runs if run.id not in self._told and now - run.last >= self._after_seconds]
        self._told |= {run.id: run.last for run in stalled}
        return stalled
