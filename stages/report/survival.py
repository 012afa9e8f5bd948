"""What the page says of how a training survived: where its time went, what ended it on the way, and what its
checkpoints cost.

Read from the measurements of the training, which its supervisor's account has made.
"""

from collections.abc import Mapping
from typing import Any

from stages.store import Artifact

CAUSES = {
    "productive": "steps that were kept",
    "starting": "verifying and loading a checkpoint, building, up to the first step",
    "hang": "from the last step until it was noticed that nothing moves",
    "checkpoints": "standing still for them",
    "heldout": "held-out losses",
    "data": "waiting for it",
    "back-off": "pauses before a relaunch",
    "finishing": "from the last step to the end of the processes",
    "down": "no supervisor was there",
}
REPLAYED = "replayed: "


def account(pretrain: Artifact) -> dict[str, Any] | None:
    """The account of the training's time; None where none was kept."""
    found: dict[str, Any] | None = pretrain.manifest.measurements.get("survival")
    return found


def time_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Productive time first, then what was lost, most first: seconds, and their share of all of the time."""
    whole, lost = found["wall_seconds"], found["lost_seconds"]
    rows = [
        ("productive", found["productive_seconds"]),
        *((cause, lost[cause]) for cause in sorted(lost, key=lambda cause: -lost[cause])),
    ]
    return [
        {"cause": cause, "what": _what(cause), "seconds": seconds, "share": seconds / whole if whole else 0.0}
        for cause, seconds in rows
    ]


def _what(cause: str) -> str:
    if cause.startswith(REPLAYED):
        return f"steps made again, or cut off, by an end of this kind: {cause.removeprefix(REPLAYED)}"
    return CAUSES[cause]
