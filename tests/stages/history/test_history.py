"""The page of all evaluations: of every training its last checkpoint, every promotion, regression and alert, and from
manifests alone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stages import alerts
from stages.history import view
from stages.history.page import render
from stages.manifest import MANIFEST
from stages.store import Artifact, Store
from tests.stages.reported_run import NASTY, made_run
from tests.stages.test_report import Page

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store(tmp_path_factory.mktemp("history"))
    made_run(made)
    ledger = alerts.Ledger(made.root, clock=lambda: 1.7e9)
    topic = alerts.Topic(label="made", kind=alerts.Kind.REGRESSION, suite="core", task="indent")
    overdue = alerts.Topic(label="made", kind=alerts.Kind.OVERDUE)
    found = (
        alerts.Look(
            label="made", kind=topic.kind, found=(alerts.Finding(topic=topic, text=f"indent fell {NASTY}"),)
        ),
        alerts.Look(label="made", kind=overdue.kind, found=(alerts.Finding(topic=overdue, text="step 4 waits"),)),
    )  # fmt: skip
    ledger.record(found)
    ledger.record([alerts.Look(label="made", kind=overdue.kind)])
    return made


def test_the_page_says_what_happened(store: Store) -> None:
    page = Page(render(store))
    text = " ".join(page.text.split())
    assert page.open == [] and all(link.startswith("#") for link in page.loaded)
    assert "script" not in page.tags and text.count(NASTY) >= 4
    (baseline,) = store.all("baseline")
    for expected in (
        "2 models judged",
        "1 baselines promoted",
        "1 scores that regressed",
        "1 alerts open now",
        "made: regression indent indent fell",
        "main 3 current",
        "indent acc 0.7 0.5 -0.2 -0.25 to -0.15 checkpoint",
        "Regressed: indent, against main no. 3",
        "not compared",
        "made: recovered from evaluation overdue no longer so: step 4 waits",
        "Held-out text, bits per byte",
        "Capability",
        "Long tail",
        "Efficiency",
        "Safety",
        "Regression",
        baseline.facts["evaluation"],
    ):
        assert expected in text, expected


def test_manifests_and_the_ledger_are_all_that_is_read(store: Store, tmp_path: Path) -> None:
    """Every other file gone, the page is the same."""
    bare = Store(tmp_path)
    shutil.copytree(store.root, tmp_path, dirs_exist_ok=True)
    for path in bare.artifacts_path.rglob("*"):
        if path.is_file() and path.name != MANIFEST:
            path.unlink()
    assert render(bare) == render(store)


def edited(artifact: Artifact, name: str, **changes: object) -> None:
    """A copy of an artifact's manifest under another key, with other facts of its model."""
    made = json.loads((artifact.path / MANIFEST).read_text())
    made["facts"]["model"] |= changes
    made |= {"key": name * 12, "label": "other"}
    folder = artifact.path.parent / f"other-{name * 12}"
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps(made))


def test_of_a_training_the_last_checkpoint_counts_and_of_other_models_all(store: Store, tmp_path: Path) -> None:
    ours = Store(tmp_path)
    shutil.copytree(store.root, tmp_path, dirs_exist_ok=True)
    for checkpoint in ours.all("checkpoint"):
        path = checkpoint.path / MANIFEST
        made = json.loads(path.read_text())
        made["config"]["parent"] = "training"
        path.write_text(json.dumps(made))
    first, last = sorted(ours.all("evaluate"), key=lambda artifact: artifact.facts["model"]["step"])
    edited(first, "a", stage="adopt", key="x", step=None, tokens_seen=None)
    edited(first, "b", stage="export", key="y")
    models = view.of_last_models(view.read(ours).evaluations, ours)
    assert {model.facts["model"]["key"] for model in models} == {last.facts["model"]["key"], "x", "y"}
    assert view.labels(view.read(ours)) == ["made", "other"]


def test_scores_of_another_version_are_left_out(store: Store) -> None:
    evaluations = view.read(store).evaluations
    panels = view.task_panels(evaluations)
    assert [len(panels["capability"][task]["made"]) for task in ("indent", "old")] == [2, 1]
    assert set(panels["efficiency"]) == {"first_token"}, "measured tasks too"
    assert [point.value for point in view.bits_panels(evaluations)["code"]["made"]] == [2.0, 2.0]


def test_the_command_writes_a_page_or_says_why_not(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "h.html"
    run = [sys.executable, "-m", "stages", "history", "--out", str(out), "--root"]
    done = subprocess.run([*run, str(store.root)], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0 and out.read_text().startswith("<!doctype html>"), done.stderr
    refused = subprocess.run([*run, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True)
    assert refused.returncode == 2 and "there is no evaluation" in refused.stderr
