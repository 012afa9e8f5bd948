"""The stage: read both evaluations, compare, write the items that moved, tell what got worse."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.base import Facts, Inputs
from stages.compare.baselines import BASELINE
from stages.compare.config import CompareConfig
from stages.compare.evaluations import read_evaluation, scores_of
from stages.journal import Journal
from stages.store import Artifact

if TYPE_CHECKING:
    from eval.compare.compare import Comparison

FLIPS = "flips.parquet"
FLIPS_TOLD = 5  # of each task, in the journal


def run(config: CompareConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Compare the candidate with the baseline."""
    from eval.compare.compare import compare
    from eval.compare.flips import flips

    candidate, baseline = inputs["candidate"], inputs["baseline"]
    found = compare(
        *(read_evaluation(a, bits_per_byte_threshold=config.bits_per_byte_threshold) for a in (candidate, baseline)),
        level=config.level,
    )
    moved = list(flips(found.tasks, config.most_flips))
    _write(out / FLIPS, moved)
    facts = {
        "candidate": _described(candidate),
        "baseline": _described(baseline),
        "level": config.level,
        **_outcome(found, measured=False),
        "not_compared": dict(found.not_compared),
        "missing": dict(found.missing),
    }
    measurements = _outcome(found, measured=True)
    _tell(journal, candidate, baseline, facts, measurements, moved, found)
    return Facts(facts=facts, measurements=measurements)


def _outcome(found: "Comparison", *, measured: bool) -> dict[str, Any]:
    return {
        "verdict": found.verdict(measured=measured),
        "regressed": found.with_verdict("regressed", measured=measured),
        "improved": found.with_verdict("improved", measured=measured),
        "tasks": {name: task.facts() for name, task in found.tasks.items() if task.task.measured == measured},
    }


def _described(artifact: Artifact) -> dict[str, Any]:
    """Which evaluation, and of which model."""
    model = scores_of(artifact)["model"]
    is_baseline = artifact.stage == BASELINE
    return {
        "kind": artifact.stage,
        "name": artifact.facts["name"] if is_baseline else "",
        "serial": artifact.facts["serial"] if is_baseline else None,
        "key": artifact.key,
        "stage": model["stage"],
        "model": model["key"],
        "step": model["step"],
        "tokens_seen": model["tokens_seen"],
    }


def _tell(
    journal: Journal,
    candidate: Artifact,
    baseline: Artifact,
    facts: dict[str, Any],
    measurements: dict[str, Any],
    moved: list[dict[str, Any]],
    found: "Comparison",
) -> None:
    about = {"candidate": candidate.key, "baseline": baseline.key, "step": facts["candidate"]["step"]}
    regressed = [*facts["regressed"], *measurements["regressed"]]
    journal.event(
        "evaluation.compared",
        **about,
        verdict=facts["verdict"],
        regressed=regressed,
        improved=[*facts["improved"], *measurements["improved"]],
        not_compared=len(facts["not_compared"]),
    )
    if regressed:
        journal.event(
            "evaluation.regressed",
            **about,
            tasks={name: found.tasks[name].facts() for name in regressed},
            flips={name: _worst(moved, name) for name in regressed},
        )
    for task, reason in facts["missing"].items():
        journal.event("metric.missing", **about, task=task, reason=reason)
    if facts["not_compared"] and not facts["tasks"]:
        task, reason = next(iter(facts["not_compared"].items()))
        journal.warning(f"nothing of {baseline.path.name} could be compared; {task}: {reason}")


def _worst(moved: Iterable[dict[str, Any]], task: str) -> list[dict[str, Any]]:
    rows = [row for row in moved if row["task"] == task and row["direction"] == "worsened"]
    return rows[:FLIPS_TOLD]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    schema = pa.schema(
        [
            ("task", pa.string()),
            ("suite", pa.string()),
            ("item", pa.int64()),
            ("cluster", pa.string()),
            ("group", pa.string()),
            ("direction", pa.string()),
            ("candidate_score", pa.float64()),
            ("baseline_score", pa.float64()),
            ("weight", pa.float64()),
            ("gold", pa.int64()),
            ("candidate_predicted", pa.int64()),
            ("baseline_predicted", pa.int64()),
            ("candidate_evidence", pa.string()),
            ("baseline_evidence", pa.string()),
        ]
    )
    parquet.write_table(pa.Table.from_pylist(rows, schema), path)
