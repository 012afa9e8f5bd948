"""What alerts are raised for, from manifests alone: a comparison, an evaluation that failed, one that never came.

Everything here is a pure function of artifacts, the ledger and a clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from stages.alerts import AlertsConfig, Finding, Kind, Known, Look, Topic
from stages.compare.stage import FLIPS
from stages.current import judged_keys
from stages.store import Artifact, Store

SHOWN_FLIPS = 5
SHOWN_CHARACTERS = 200
REGRESSION_RUN = "regression run"


def looks_of_comparison(label: str, compared: Artifact, flips: Sequence[Mapping[str, Any]]) -> tuple[Look, Look]:
    """What a comparison says of the newest model of `label`: tasks that regressed, and tasks that it lacks.

    flips: rows of flips.parquet. What could not be compared stays as it was.
    """
    facts = compared.facts
    tasks = {**facts["tasks"], **compared.manifest.measurements.get("tasks", {})}
    found = [
        Finding(
            topic=Topic(label=label, kind=Kind.REGRESSION, suite=scores["suite"], task=task),
            text=_worsened(task, scores),
            evidence={
                **{name: scores[name] for name in ("baseline", "candidate", "low", "high", "p_corrected")},
                "of": facts["baseline"],
                "model": facts["candidate"],
                "artifact": str(compared.path),
                "flips": _worst(task, flips),
            },
        )
        for task, scores in tasks.items()
        if scores["verdict"] == "regressed"
    ]
    missing = [
        Finding(
            topic=Topic(label=label, kind=Kind.MISSING, task=task),
            text=f"{task}: {reason}",
            evidence={"model": facts["candidate"], "artifact": str(compared.path)},
        )
        for task, reason in facts["missing"].items()
    ]
    return (
        Look(
            label=label,
            kind=Kind.REGRESSION,
            found=tuple(found),
            unknown=frozenset((*facts["not_compared"], *facts["missing"])),
        ),
        Look(label=label, kind=Kind.MISSING, found=tuple(missing)),
    )


def read_flips(compared: Artifact) -> list[dict[str, Any]]:
    """The rows of a comparison's flips.parquet, in their order."""
    import pyarrow.parquet as parquet

    rows: list[dict[str, Any]] = parquet.read_table(compared.path / FLIPS).to_pylist()
    return rows


def look_of_failure(label: str, model: str, error: str) -> Look:
    """An evaluation that has failed for good. model: what was to be evaluated."""
    topic = Topic(label=label, kind=Kind.FAILED)
    text = f"{model}: {error}".replace("\n", " ")[: 2 * SHOWN_CHARACTERS]
    return Look(label=label, kind=Kind.FAILED, found=(Finding(topic=topic, text=text, evidence={"model": model}),))


def look_of_success(label: str) -> Look:
    """An evaluation that has come to its end."""
    return Look(label=label, kind=Kind.FAILED)


def look_for_overdue(label: str, store: Store, known: Known, config: AlertsConfig, now: float) -> Look:
    """Healthy checkpoints of `label` without any evaluation for too long, and scheduled runs that have not come. now:
    Unix seconds."""
    evaluations = list(store.all("evaluate"))
    evaluated = judged_keys(evaluations)
    waiting = [
        (artifact, minutes)
        for artifact in store.all("checkpoint")
        if artifact.manifest.label == label and artifact.key not in evaluated
        if (minutes := (now - finished(artifact)) / 60) > config.overdue_minutes
    ]
    found = []
    if waiting:
        oldest, minutes = max(waiting, key=lambda pair: (pair[1], -pair[0].facts["step"]))
        text = (
            f"{len(waiting)} healthy checkpoints have no evaluation; that of step {oldest.facts['step']} "
            f"({oldest.key}) has waited {minutes:.0f} minutes"
        )
        evidence = {"checkpoints": [artifact.key for artifact, _ in waiting[:SHOWN_FLIPS]]}
        found.append(Finding(topic=Topic(label=label, kind=Kind.OVERDUE), text=text, evidence=evidence))
    since = known.looked.get(label, min((finished(made) for made in evaluations), default=now))
    hours = (now - since) / 3600
    if config.regression_hours and hours > config.regression_hours:
        text = f"no regression run has come to its end for {hours:.1f} hours; one was expected every "
        text += f"{config.regression_hours:g}"
        topic = Topic(label=label, kind=Kind.OVERDUE, task=REGRESSION_RUN)
        found.append(Finding(topic=topic, text=text, evidence={"since": since}))
    return Look(label=label, kind=Kind.OVERDUE, found=tuple(found))


def finished(artifact: Artifact) -> float:
    """When an artifact was published, in Unix seconds."""
    return datetime.fromisoformat(artifact.manifest.provenance["finished"]).timestamp()


def _worsened(task: str, scores: Mapping[str, Any]) -> str:
    return (
        f"{task} ({scores['metric']}): {scores['baseline']:.4g} -> {scores['candidate']:.4g}, a difference of "
        f"{scores['difference']:+.3g} (95%: {scores['low']:+.3g} to {scores['high']:+.3g}), "
        f"p = {scores['p_corrected']:.2g} after correction"
    )


def _worst(task: str, flips: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a task's items that worsened most, as they are ordered, their evidence cut short."""
    rows = [row for row in flips if row["task"] == task and row["direction"] == "worsened"][:SHOWN_FLIPS]
    return [
        {name: value[:SHOWN_CHARACTERS] if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]
