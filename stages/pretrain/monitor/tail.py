"""Turns the metrics that the workers append into progress, events and warnings."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stages.journal import Journal
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory

EVENT_SECONDS = 1.0


class MetricsTail:
    """Follows metrics.jsonl and timing.jsonl. `reached`: the last completed step. `clock`: seconds, monotonic."""

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
        self._metrics = Appended(run.metrics)
        self._timing = Appended(run.timing)
        self._config = config
        self._journal = journal
        self._clock = clock
        self._event_at = -EVENT_SECONDS
        self._rate_from: tuple[float, int] | None = None
        self._seconds = self._waited = 0.0
        self._machine: dict[str, float] = {}

    def poll(self) -> int:
        """Take in what has been appended; at most one event a second, and always one for the last step. Returns
        `reached`."""
        lines = self._metrics.lines()
        for line in self._timing.lines():
            self._seconds += line["seconds"]
            self._waited += line["data_wait_seconds"]
            for warning in line.get("warnings", ()):
                self._journal.warning(f"step {line['step']}: {warning}")
            self._machine |= machine(line)
        if not lines:
            return self.reached
        latest = lines[-1]
        self.reached = latest["step"]
        now = self._clock()
        self._journal.progress("training", self.reached, self._config.num_steps, unit="steps")
        if now - self._event_at >= EVENT_SECONDS or self.reached == self._config.num_steps:
            waits = round(self._waited / self._seconds, 4) if self._seconds else None
            rate = self._rate(now, latest["tokens"])
            shown = {name: value for name, value in latest.items() if not isinstance(value, dict | list)}
            self._journal.event("metric", **shown, tokens_per_second=rate, data_wait_ratio=waits, **self._machine)
            self._event_at = now
            self._seconds = self._waited = 0.0
        return self.reached

    def _rate(self, now: float, tokens: int) -> float | None:
        """Tokens predicted a second since the last event; None for the first one. tokens: up to `now`."""
        since, self._rate_from = self._rate_from, (now, tokens)
        if since is None or now <= since[0]:
            return None
        return round((tokens - since[1]) / (now - since[0]), 1)


def machine(line: Mapping[str, Any]) -> dict[str, float]:
    """What a timing line says about the use of the machine: mfu, and on sampled steps of several processes
    exposed_share."""
    found = {"mfu": line["mfu"]} if "mfu" in line else {}
    return found | {"exposed_share": line["communication"]["exposed_share"]} if "communication" in line else found


class Appended:
    """The JSON objects that are appended to a .jsonl file from now on, and those in so many of its last bytes."""

    def __init__(self, path: Path, *, last_bytes: int = 0) -> None:
        self._path = path
        self._offset = max((path.stat().st_size if path.exists() else 0) - last_bytes, 0)

    def lines(self) -> list[dict[str, Any]]:
        """Those that are whole and that nobody has asked for yet."""
        try:
            with open(self._path, "rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:  # a restarted training has dropped what it will do again
                    self._offset = file.tell()
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(whole) + len(newline)
        return list(_whole(whole.splitlines()))


def _whole(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Without those that lack their beginning, where reading began, or their end, where a kill tore them."""
    for line in lines:
        with suppress(ValueError):
            yield json.loads(line)
