"""Journal events to Prefect: a log line a second at most, and an event for what somebody may wait for."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

from prefect.artifacts import acreate_markdown_artifact
from prefect.events import emit_event
from prefect.logging import get_run_logger

from stages.looks import read_flips
from stages.store import Artifact

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
        "evaluation.compared",
        "evaluation.regressed",
        "metric.missing",
    }
)
UNLOGGED_KINDS = frozenset({"metric", "progress", "evaluation.regressed"})  # the last one holds items, and is an event


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


async def show_evaluation(made: Artifact) -> None:
    """Scores and pictures of an evaluation in the Prefect UI, one version after another under one key."""
    from eval.charts.markdown import evaluation_markdown

    text = await asyncio.to_thread(evaluation_markdown, made.facts, made.manifest.measurements)
    await _show(f"evaluation-{made.manifest.label}", text, f"Evaluation of {made.facts['model']['key']}")


async def show_comparison(made: Artifact) -> None:
    """What a comparison has found, with the items that flipped."""
    from eval.charts.markdown import comparison_markdown

    text = await asyncio.to_thread(comparison_markdown, made.facts, made.manifest.measurements, read_flips(made))
    await _show(f"comparison-{made.manifest.label}", text, f"Comparison of {made.facts['candidate']['key']}")


async def _show(key: str, text: str, description: str) -> None:
    """An artifact's key may hold small letters, digits and dashes alone."""
    await acreate_markdown_artifact(text, key=re.sub("[^a-z0-9]+", "-", key.lower()), description=description)
