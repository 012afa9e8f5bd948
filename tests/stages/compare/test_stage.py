import dataclasses
import io

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from stages.base import execute
from stages.compare import STAGE, CompareConfig
from stages.compare.baselines import promote
from stages.compare.chosen import choose_baseline
from stages.compare.stage import FLIPS
from stages.console import ConsoleListener
from stages.journal import read_events
from stages.manifest import EVENTS
from stages.store import Store
from tests.eval.compare.made import items
from tests.stages.compare.made import core, documents, publish_evaluation, publish_export, publish_model, result
from tests.stages.export.made import job


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def models(store):
    """Three checkpoints of one training, and one of another."""
    publish_model(store, 15, last=False, training="another")
    return [publish_model(store, step, last=step == 30) for step in (10, 20, 30)]


def compared(store, candidate, baseline, **settings):
    return execute(job(STAGE, settings, candidate=candidate, baseline=baseline), store)


def events(artifact, kind):
    return [event for event in read_events(artifact.path / EVENTS) if event["kind"] == kind]


def test_a_regression_is_told_once_with_the_items_that_flipped(store, models):
    slow = np.linspace(1.9, 2.1, 9)
    baseline = publish_evaluation(
        store,
        models[1],
        [*core(wrong=2), result("latency", items(slow / 2), measured=True, higher_is_better=False)],
        scores=documents(),
    )
    candidate = publish_evaluation(
        store,
        models[2],
        [*core(wrong=22), result("latency", items(slow), measured=True, higher_is_better=False)],
        scores=documents(1.02),
    )
    artifact = compared(store, candidate, baseline)
    facts = artifact.facts
    assert facts["verdict"] == "regressed"
    assert sorted(facts["regressed"]) == ["bits_per_byte/code", "quote"]
    assert facts["tasks"]["bits_per_byte/code"]["difference"] == pytest.approx(
        0.02 * facts["tasks"]["bits_per_byte/code"]["baseline"]
    )
    assert (facts["candidate"]["model"], facts["baseline"]["model"]) == (models[2].key, models[1].key)
    assert artifact.manifest.measurements["regressed"] == ["latency"]
    assert "latency" not in facts["tasks"]

    (told,) = events(artifact, "evaluation.regressed")
    assert sorted(told["tasks"]) == ["bits_per_byte/code", "latency", "quote"]
    assert [row["item"] for row in told["flips"]["quote"]] == [2, 3, 4, 5, 6]
    (summary,) = events(artifact, "evaluation.compared")
    assert (summary["verdict"], summary["step"]) == ("regressed", 30)
    rows = pq.read_table(artifact.path / FLIPS).to_pylist()
    assert len([row for row in rows if row["task"] == "quote"]) == 20
    assert {row["candidate_evidence"] for row in rows if row["task"] == "bits_per_byte/code"} <= {
        f"code/{i}" for i in range(30)
    }


def test_a_person_reads_what_happened(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("stages.console.Console", lambda **_: Console(file=stream, width=200))
    about = {"stage": "compare", "candidate": "0123", "baseline": "4567", "step": 30}
    with ConsoleListener() as listener:
        listener({**about, "kind": "evaluation.compared", "verdict": "no_difference", "improved": ["indent"]})
        tasks = {"quote": {"candidate": 0.6333333, "baseline": 0.9666667}}
        listener({**about, "kind": "evaluation.regressed", "tasks": tasks})
        listener({**about, "kind": "metric.missing", "task": "quote", "reason": "it was left out"})
    assert stream.getvalue().splitlines() == [
        "compare      evaluation 0123 against 4567: no difference; improved: indent",
        "compare      regressed: quote from 0.9667 to 0.6333",
        "compare      there is no score of quote: it was left out",
    ]


def test_an_equal_model_is_not_told_of(store, models):
    baseline = publish_evaluation(store, models[1], core(wrong=9), scores=documents())
    candidate = publish_evaluation(store, models[2], core(wrong=9), scores=documents(), number=1)
    artifact = compared(store, candidate, baseline)
    assert artifact.facts["verdict"] == "no_difference"
    assert not events(artifact, "evaluation.regressed")
    again = execute(job(STAGE, {}, candidate=candidate, baseline=baseline), store, rebuild=True)
    assert again.digest == artifact.digest


def test_a_task_that_has_no_score_any_more_is_told_as_missing(store, models):
    baseline = publish_evaluation(store, models[1], [*core(2), result("indent", items([1.0] * 9))])
    candidate = publish_evaluation(store, models[2], core(2), skipped={"indent": "no sentence"})
    artifact = compared(store, candidate, baseline)
    assert artifact.facts["missing"] == {"indent": "it was left out: no sentence"}
    (told,) = events(artifact, "metric.missing")
    assert (told["task"], told["candidate"]) == ("indent", candidate.key)


def test_documents_of_one_name_are_told_apart(store, models):
    """Two versions of a page, say."""

    def twice(factor):
        ours = documents(factor)["code"]
        return {"code": [*ours, *(dataclasses.replace(each, text_hash=f"{each.text_hash} again") for each in ours)]}

    baseline = publish_evaluation(store, models[1], core(2), scores=twice(1))
    candidate = publish_evaluation(store, models[2], core(2), scores=twice(1.02))
    task = compared(store, candidate, baseline).facts["tasks"]["bits_per_byte/code"]
    assert (task["num_items"], task["num_clusters"], task["verdict"]) == (60, 30, "regressed")


def test_what_cannot_be_compared_is_said_plainly(store, models):
    baseline = publish_evaluation(store, models[1], core(2), harness="0.4.12")
    candidate = publish_evaluation(store, models[2], core(30))
    artifact = compared(store, candidate, baseline)
    assert artifact.facts["verdict"] == "not_compared"
    assert artifact.facts["not_compared"] == {
        "quote": "lm-eval 0.4.13 asked the candidate, and lm-eval 0.4.12 the baseline"
    }
    assert "nothing of" in events(artifact, "warning")[0]["text"]


def test_a_baseline_stands_for_the_evaluation_that_was_promoted(store, models):
    evaluation = publish_evaluation(store, models[2], core(2), scores=documents())
    candidate = publish_evaluation(store, models[1], core(25), scores=documents(1.5))
    baseline = promote(store, evaluation, "main")
    against = compared(store, candidate, baseline)
    assert against.facts["tasks"] == compared(store, candidate, evaluation).facts["tasks"]
    assert (against.facts["baseline"]["name"], against.facts["baseline"]["serial"]) == ("main", 1)
    itself = compared(store, evaluation, baseline)
    assert itself.facts["verdict"] == "no_difference"
    assert not itself.facts["not_compared"]


def chosen(store, candidate):
    return choose_baseline(CompareConfig(), store, {"candidate": (candidate,)})


def test_a_checkpoint_is_compared_with_the_one_before_and_a_finished_model_with_the_baseline(store, models):
    first, second, last = (publish_evaluation(store, model, core(2)) for model in models)
    another = publish_evaluation(store, next(m for m in store.all("checkpoint") if m.facts["step"] == 15), core(2))
    export = publish_evaluation(store, publish_export(store, models[2]), core(2))
    assert chosen(store, first) is None
    assert chosen(store, second).key == first.key
    assert chosen(store, last).key == second.key
    assert chosen(store, export).key == last.key
    assert chosen(store, another) is None
    baseline = promote(store, second, "main")
    promote(store, first, "another name")
    assert chosen(store, last).key == chosen(store, export).key == baseline.key
    assert chosen(store, second).key == first.key
    assert chosen(store, first) is None


def test_of_two_evaluations_of_a_model_the_one_that_was_asked_alike_counts(store, models):
    """A last checkpoint is asked more than the one before it, so their suites are never all the same."""
    alike = publish_evaluation(store, models[1], core(2))
    publish_evaluation(store, models[1], core(2), harness="0.4.12")
    asked_more = [*core(2), result("latency", items([1.0] * 9), measured=True)]
    assert chosen(store, publish_evaluation(store, models[2], asked_more)).key == alike.key
