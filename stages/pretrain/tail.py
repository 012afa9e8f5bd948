"""Turns the metrics that the workers append into progress and events."""

import json
import time
from collections.abc import Callable

from stages.journal import Journal
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory

EVENT_SECONDS = 1.0


class MetricsTail:
    """Follows metrics.jsonl. `reached`: the last completed step. `clock`: seconds, monotonic."""

    def __init__(
        self,
        run: RunDirectory,
        config: PretrainConfig,
        journal: Journal,
        *,
        resumed_step: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins behind the lines that are there, which are those of the steps up to `resumed_step`."""
        self.reached = resumed_step
        self._path = run.metrics
        self._config = config
        self._journal = journal
        self._clock = clock
        self._offset = run.metrics.stat().st_size if run.metrics.exists() else 0
        self._event_at = -EVENT_SECONDS
        self._rate_from: tuple[float, int] | None = None

    def poll(self) -> int:
        """Take in what has been appended; at most one event a second, and always one for the last step. Returns
        `reached`."""
        if not self._path.exists():
            return self.reached
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        if not newline:
            return self.reached
        latest = json.loads(whole.rpartition(b"\n")[2])
        self.reached = latest["step"]
        now = self._clock()
        self._journal.progress("training", self.reached, self._config.num_steps, unit="steps")
        if now - self._event_at >= EVENT_SECONDS or self.reached == self._config.num_steps:
            self._journal.event("metric", **latest, tokens_per_second=self._rate(now))
            self._event_at = now
        return self.reached

    def _rate(self, now: float) -> float | None:
        """Target tokens a second since the last event; None for the first one."""
        since, self._rate_from = self._rate_from, (now, self.reached)
        if since is None or now <= since[0]:
            return None
        return round((self.reached - since[1]) * self._config.batch_tokens / (now - since[0]), 1)
