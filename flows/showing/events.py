"""Journal events as events of Prefect: which ones, what they are about, and what they carry."""

import json
from typing import TYPE_CHECKING, Any

from prefect.events import emit_event

if TYPE_CHECKING:
    from flows.stage_task import Run

HEALTHY = "checkpoint.healthy"
KINDS = frozenset(
    {
        "checkpoint.saved",
        HEALTHY,
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
MOST_CHARACTERS = 2000
MOST_PAYLOAD_BYTES = 200_000  # Prefect takes 1.5 MB
MOST_ITEMS = 20


def emit(event: dict[str, Any], run: "Run") -> None:
    """Hand an event of a stage to the thread that sends those of this process."""
    emit_event(event["kind"], resource=resource(event, run), payload=payload(event, run))


def resource(event: dict[str, Any], run: "Run") -> dict[str, str]:
    """What an event is about. A checkpoint says whether the flow run that made it will evaluate it."""
    kind, name = event["kind"], run.recipe.name
    if kind == HEALTHY:
        return {
            "prefect.resource.id": f"longhaul.checkpoint.{event['key']}",
            "prefect.resource.name": f"{name} step {event['step']}",
            "longhaul.recipe": name,
            "longhaul.evaluation": "beside" if run.evaluates else "wanted",
        }
    return {
        "prefect.resource.id": f"longhaul.{event['stage']}.{event.get('key', kind)}",
        "prefect.resource.name": f"{name} {event['stage']}",
        "longhaul.recipe": name,
    }


def payload(event: dict[str, Any], run: "Run") -> dict[str, Any]:
    """The event, no larger than Prefect takes, and of a healthy checkpoint what its evaluation needs."""
    found = dict(bounded(event))  # the event itself goes on to other listeners
    if event["kind"] == HEALTHY:
        tables = json.dumps(run.recipe.tables(), ensure_ascii=False, separators=(",", ":"))
        found |= {"recipe_json": tables, "root": str(run.root.resolve())}
    return found


def bounded(event: dict[str, Any], most_bytes: int = MOST_PAYLOAD_BYTES) -> dict[str, Any]:
    """The event itself or, if it is large, with its longest fields cut, and what stands in `cut`."""
    if _bytes(event) <= most_bytes:
        return event
    found = {name: _cut(value) for name, value in event.items()}
    found["cut"] = [name for name, value in event.items() if found[name] != value]
    for name in sorted(event, key=lambda name: -_bytes(found[name])):
        if _bytes(found) <= most_bytes:
            break
        found[name] = None
        found["cut"] = sorted({*found["cut"], name})
    return found


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return short(value)
    if isinstance(value, list):
        return [_cut(each) for each in value[:MOST_ITEMS]]
    if isinstance(value, dict):
        return {name: _cut(value[name]) for name in list(value)[:MOST_ITEMS]}
    return value


def _bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
