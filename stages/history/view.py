"""What the page of all evaluations shows, as plain values: read from manifests and from the ledger of alerts, and from
nothing else.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stages import alerts
from stages.compare.baselines import BASELINE
from stages.looks import finished
from stages.store import Artifact, Store

if TYPE_CHECKING:
    from eval.charts.frame import Point

Panels = dict[str, dict[str, "list[Point]"]]


@dataclass(frozen=True, kw_only=True)
class Past:
    """What a store holds of the past, each oldest first."""

    evaluations: tuple[Artifact, ...]
    baselines: tuple[Artifact, ...]
    comparisons: tuple[Artifact, ...]
    alerts: alerts.Known


def read(store: Store) -> Past:
    """All of it."""
    evaluations, baselines, comparisons = (
        tuple(sorted(store.all(stage), key=finished)) for stage in ("evaluate", BASELINE, "compare")
    )
    return Past(
        evaluations=evaluations,
        baselines=baselines,
        comparisons=comparisons,
        alerts=alerts.read(store.root / alerts.LEDGER),
    )


def labels(past: Past) -> list[str]:
    """Labels of recipes, the one with most evaluations first, so that it has a colour of its own."""
    counts = Counter(artifact.manifest.label for artifact in past.evaluations)
    return sorted(counts, key=lambda label: (-counts[label], label))


def of_last_models(evaluations: Sequence[Artifact], store: Store) -> list[Artifact]:
    """Of each training the evaluation of its last checkpoint, and all of exported and adopted models: checkpoints on
    the way would hide how one model goes to the next."""
    last: dict[str, Artifact] = {}
    for artifact in evaluations:
        training = _training(artifact, store)
        if training not in last or _step(artifact) >= _step(last[training]):
            last[training] = artifact
    return sorted(last.values(), key=finished)


def _training(evaluation: Artifact, store: Store) -> str:
    """What checkpoints of one training have in common; for other models, and for a checkpoint that is gone, the key of
    the model."""
    model = evaluation.facts["model"]
    found = store.find(model["stage"], model["key"]) if model["stage"] == "checkpoint" else None
    parent = found.manifest.config.get("parent") if found else None
    return f"{evaluation.manifest.label} {parent or model['key']}"


def _step(evaluation: Artifact) -> int:
    return evaluation.facts["model"]["step"] or 0


def bits_panels(evaluations: Sequence[Artifact]) -> Panels:
    """domain -> label -> bits per byte by date."""
    from eval.charts.frame import Point

    panels: Panels = {}
    for artifact in evaluations:
        for domain, score in sorted(artifact.facts["bits_per_byte"].items()):
            point = Point(x=finished(artifact), **{name: score[name] for name in ("value", "low", "high")})
            panels.setdefault(domain, {}).setdefault(artifact.manifest.label, []).append(point)
    return panels


def task_panels(evaluations: Sequence[Artifact]) -> dict[str, Panels]:
    """axis -> task -> label -> score by date; of a task's latest version only. Measured tasks are among them."""
    from eval.charts.frame import Point
    from eval.charts.reading import AXES, interval

    every = [
        (artifact, {**artifact.facts["tasks"], **artifact.manifest.measurements.get("tasks", {})})
        for artifact in evaluations
    ]
    latest = {name: task["version"] for _, tasks in every for name, task in tasks.items()}
    found: dict[str, Panels] = {axis: {} for axis in AXES}
    for artifact, tasks in every:
        for name, task in tasks.items():
            if task["version"] == latest[name]:
                low, high = interval(task)
                point = Point(x=finished(artifact), value=task["value"], low=low, high=high)
                found[task["axis"]].setdefault(name, {}).setdefault(artifact.manifest.label, []).append(point)
    return {axis: panels for axis, panels in found.items() if panels}


def evaluation_rows(past: Past) -> list[dict[str, Any]]:
    """A line for each evaluation, the newest first."""
    verdicts = {comparison.facts["candidate"]["key"]: comparison for comparison in past.comparisons}
    return [
        {
            "finished": artifact.manifest.provenance["finished"],
            "label": artifact.manifest.label,
            "key": artifact.key,
            "model": artifact.facts["model"],
            "bits": {domain: score["value"] for domain, score in sorted(artifact.facts["bits_per_byte"].items())},
            "num_tasks": len(artifact.facts["tasks"]) + len(artifact.manifest.measurements.get("tasks", {})),
            "skipped": len(artifact.facts["skipped_tasks"]) + len(artifact.manifest.measurements["skipped_tasks"]),
            **_verdict(verdicts.get(artifact.key)),
        }
        for artifact in reversed(past.evaluations)
    ]


def _verdict(comparison: Artifact | None) -> dict[str, Any]:
    from eval.charts.markdown import verdict_words

    if comparison is None:
        return {"verdict": "not compared", "bad": False, "against": ""}
    baseline = comparison.facts["baseline"]
    words = verdict_words(comparison.facts, comparison.manifest.measurements)
    against = f"{baseline['name']} no. {baseline['serial']}" if baseline["name"] else f"evaluation {baseline['key']}"
    bad = bool(comparison.facts["regressed"] or comparison.manifest.measurements.get("regressed"))
    return {"verdict": words, "bad": bad, "against": against}


def baseline_rows(past: Past) -> list[dict[str, Any]]:
    """A line for each promotion, the newest first; the current one of each name is marked."""
    in_turn = sorted(past.baselines, key=lambda artifact: artifact.facts["serial"])
    newest = {artifact.facts["name"]: artifact.facts["serial"] for artifact in in_turn}
    return [
        {
            "finished": artifact.manifest.provenance["finished"],
            "name": artifact.facts["name"],
            "serial": artifact.facts["serial"],
            "current": newest[artifact.facts["name"]] == artifact.facts["serial"],
            "evaluation": artifact.facts["evaluation"],
            "model": artifact.facts["of"]["model"],
            "by": artifact.manifest.provenance.get("promoted_by", ""),
            "note": artifact.manifest.provenance.get("note", ""),
        }
        for artifact in reversed(past.baselines)
    ]


def regression_rows(past: Past) -> list[dict[str, Any]]:
    """A line for each task that regressed in each comparison, the newest first."""
    from eval.charts.reading import compared_tasks

    return [
        {
            "finished": comparison.manifest.provenance["finished"],
            "label": comparison.manifest.label,
            "task": name,
            "model": comparison.facts["candidate"],
            "against": _verdict(comparison)["against"],
            **{part: task[part] for part in ("metric", "baseline", "candidate", "difference", "low", "high")},
        }
        for comparison in reversed(past.comparisons)
        for name, task in compared_tasks(comparison.facts, comparison.manifest.measurements)
        if task["verdict"] == "regressed"
    ]


def alert_rows(past: Past) -> list[dict[str, Any]]:
    """A line for each notice, the newest first."""
    return [
        {
            "time": datetime.fromtimestamp(notice.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "state": notice.state.value,
            "bad": notice.state is alerts.State.RAISED,
            "title": notice.title,
            "text": notice.text,
            "link": notice.link,
        }
        for notice in reversed(past.alerts.notices)
    ]
