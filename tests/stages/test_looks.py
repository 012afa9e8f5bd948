"""A user relies on: an alert for what got worse, for what is missing and for what never came, with the evidence."""

from pathlib import Path
from typing import Any

from stages.alerts import AlertsConfig, Kind, Known
from stages.base import Facts, Job, OneOf, Stage, execute
from stages.config import StageConfig
from stages.looks import (
    REGRESSION_RUN,
    finished,
    look_for_overdue,
    look_of_failure,
    look_of_success,
    looks_of_comparison,
    read_flips,
)
from stages.store import Artifact, Store
from tests.stages.export.made import publish

MINUTE = 60.0
NOTHING_KNOWN = Known(notices=(), delivered=frozenset(), looked={})


def scores(verdict: str, suite: str = "core") -> dict[str, Any]:
    return {
        "suite": suite,
        "metric": "acc",
        "verdict": verdict,
        "baseline": 0.9,
        "candidate": 0.5,
        "difference": -0.4,
        "low": -0.5,
        "high": -0.3,
        "p_corrected": 1e-6,
    }


def compared(store: Store) -> Artifact:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"task": task, "direction": direction, "item": item, "candidate_evidence": "x" * 1000}
        for task in ("bracket", "word")
        for direction in ("worsened", "improved")
        for item in range(9)
    ]
    facts = {
        "candidate": {"key": "c"},
        "baseline": {"key": "b", "name": "main"},
        "tasks": {"bracket": scores("regressed"), "word": scores("worse"), "indent": scores("improved")},
        "not_compared": {"copying": "another version"},
        "missing": {"leaks": "was not run"},
    }
    measurements = {"tasks": {"first_token": scores("regressed", "efficiency")}}
    return publish(
        store, "compare", lambda out: pq.write_table(pa.Table.from_pylist(rows), out / "flips.parquet"), facts,
        measurements=measurements,
    )  # fmt: skip


def test_a_comparison_tells_of_regressions_with_the_items_that_flipped(tmp_path: Path) -> None:
    made = compared(Store(tmp_path))
    regressions, missing = looks_of_comparison("demo", made, read_flips(made))
    assert {each.topic.task: each.topic.suite for each in regressions.found} == {
        "bracket": "core",
        "first_token": "efficiency",
    }
    assert regressions.unknown == {"copying", "leaks"}
    evidence = regressions.found[0].evidence
    assert [row["item"] for row in evidence["flips"]] == [0, 1, 2, 3, 4]
    assert all(row["direction"] == "worsened" and len(row["candidate_evidence"]) == 200 for row in evidence["flips"])
    assert evidence["artifact"] == str(made.path) and evidence["of"]["name"] == "main"
    assert "0.9 -> 0.5" in regressions.found[0].text
    assert [each.topic.task for each in missing.found] == ["leaks"] and missing.kind is Kind.MISSING


def test_a_failure_is_one_alert_of_its_label_until_an_evaluation_succeeds() -> None:
    failed = look_of_failure("demo", "demo-0123", "evaluate failed (exit code 1):\n" + "x" * 5000)
    assert len(failed.found[0].text) <= 400 and "\n" not in failed.found[0].text
    assert (look_of_success("demo").label, look_of_success("demo").kind) == (failed.label, failed.kind)


def checkpoint(store: Store, step: int) -> Artifact:
    return publish(store, "checkpoint", lambda out: None, {"step": step})


def evaluated(store: Store, model: Artifact) -> Artifact:
    inputs = {"model": OneOf("checkpoint")}
    stage = Stage(name="evaluate", revision=1, config=StageConfig, inputs=inputs, run=lambda *_: Facts(facts={}))
    job = Job(stage=stage, config=StageConfig(), externals={}, inputs={"model": (model,)}, label="made")
    return execute(job, store)


def test_a_checkpoint_without_evaluation_is_overdue_after_its_time(tmp_path: Path) -> None:
    store, config = Store(tmp_path), AlertsConfig(overdue_minutes=30)
    first, second = checkpoint(store, 10), checkpoint(store, 20)

    def tasks(minutes: float, label: str = "made") -> list[str]:
        now = finished(second) + minutes * MINUTE
        return [each.text for each in look_for_overdue(label, store, NOTHING_KNOWN, config, now).found]

    assert tasks(29) == [] and tasks(31, "another recipe") == []
    (text,) = tasks(31)
    assert "2 healthy checkpoints" in text and "step 10" in text
    for each in (first, second):
        evaluated(store, each)
    assert tasks(1000) == []


def test_a_regression_run_that_does_not_come_is_overdue(tmp_path: Path) -> None:
    store, config = Store(tmp_path), AlertsConfig(regression_hours=24)
    evaluated(store, checkpoint(store, 10))
    known = Known(notices=(), delivered=frozenset(), looked={"made": 1000.0})

    def tasks(hours: float, config: AlertsConfig = config) -> list[str]:
        return [each.topic.task for each in look_for_overdue("made", store, known, config, 1000.0 + hours * 3600).found]

    assert tasks(23) == [] and tasks(25) == [REGRESSION_RUN] and tasks(25, AlertsConfig()) == []
