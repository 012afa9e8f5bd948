"""Journal events to Prefect: a log line a second at most, and an event for what somebody may wait for."""

import time
from collections.abc import Callable
from typing import Any

from prefect.events import emit_event
from prefect.logging import get_run_logger

LOG_INTERVAL_SECONDS = 1.0
EMITTED_KINDS = frozenset(
    {
        "checkpoint.saved",
        "checkpoint.healthy",
        "incident",
        "excluded",
        "group.lost",
        "group.joined",
        "store.stalled",
        "store.recovered",
        "export.refused",
    }
)
UNLOGGED_KINDS = frozenset({"metric", "progress"})


class Notifier:
    """A journal listener inside a task run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = get_run_logger()
        self._clock = clock
        self._logged_at = float("-inf")

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind in EMITTED_KINDS:
            resource = {"prefect.resource.id": f"longhaul.{event['stage']}.{event.get('key', kind)}"}
            emit_event(kind, resource=resource, payload=event)
        fields = " ".join(f"{name}={value}" for name, value in event.items() if name not in ("time", "stage", "kind"))
        if kind == "warning":
            self._logger.warning("%s: %s", event["stage"], event["text"])
        elif kind not in UNLOGGED_KINDS or self._clock() - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = self._clock()
            self._logger.info("%s %s %s", event["stage"], kind, fields)
