"""Whole runs on one process: killed, resumed, rolled back."""

import signal
from pathlib import Path
from typing import Any

import pytest

from stages.errors import TRY_AGAIN
from stages.pretrain.batches.documents import documents_of_draw
from stages.pretrain.batches.exclusions import Exclusion, write_exclusions
from stages.pretrain.batches.sequences import open_train
from stages.pretrain.checkpoints.checkpoint import load_model
from stages.pretrain.job import RunDirectory, read_lines
from stages.store import Artifact, Store
from tests.stages.pretrain import faults, micro
from tests.stages.pretrain.forked import workers_forked
from tests.stages.pretrain.runs import STEPS, config, incidents, metrics, state_digests, stopped_supervisor


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Of a run that nothing happens to, and that waits for no checkpoint."""
    with workers_forked():
        return micro.pretrain(config(1, asynchronous_checkpoints=True), Store(tmp_path_factory.mktemp("undisturbed")))


def test_a_run_learns_and_leaves_artifacts_that_load(undisturbed: Artifact) -> None:
    lines = metrics(undisturbed)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert [line["tokens"] for line in lines] == [step * 96 for step in range(1, STEPS + 1)]
    facts = undisturbed.facts
    assert facts["num_steps"] == STEPS
    assert facts["first_loss"] == lines[0]["loss"]
    assert facts["final_loss"] == lines[-1]["loss"] < 0.9 * lines[0]["loss"]
    store = Store(undisturbed.path.parents[2])
    checkpoints = list(store.all("checkpoint"))
    assert [entry["step"] for entry in facts["checkpoints"]] == [10, 20]
    assert {entry["digest"] for entry in facts["checkpoints"]} == {found.digest for found in checkpoints}
    model = load_model(store.find("checkpoint", facts["checkpoints"][-1]["key"]).path)
    padding = (micro.PADDED - micro.VOCABULARY) * micro.MODEL.hidden_size
    assert sum(parameter.numel() for parameter in model.parameters()) == facts["parameters"] - padding


def test_kills_change_nothing_in_the_result(
    undisturbed: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the supervisor, of its worker within a step, and of its worker behind the last one."""
    assert stopped_supervisor(tmp_path, 1, signal.SIGTERM, monkeypatch) == TRY_AGAIN
    faults.plan(monkeypatch, tmp_path / "marks", ("update", 13, 0, "kill"), ("written", STEPS, 0, "kill"))
    store = Store(tmp_path)
    with workers_forked():
        killed = micro.pretrain(config(1), store, hook=faults.HOOK)
    found = incidents(store, killed)
    ends = [(incident["decision"], incident["exit_code"]) for incident in found]
    assert ends == [("relaunch", -9)] * 2, "a stop on request is no incident"
    assert found[0]["resumed_step"] > 0, "it began again"
    assert metrics(killed) == metrics(undisturbed)
    assert killed.digest == undisturbed.digest
    assert state_digests(store) == state_digests(Store(undisturbed.path.parents[2]))
    account = killed.manifest.measurements["survival"]
    assert [end["kind"] for end in account["ends"]] == ["request", "kill", "kill"]
    kept = sum(line["seconds"] - line["data_wait_seconds"] for line in read_lines(killed.path / "timing.jsonl"))
    assert account["productive_seconds"] == pytest.approx(kept, abs=1e-3)
    lost = sum(account["lost_seconds"].values())
    assert kept + lost == pytest.approx(account["wall_seconds"], abs=0.01), "every second has a cause"


def test_a_batch_that_is_never_finite_is_left_out_and_the_run_is_that_of_one_that_never_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.plan(monkeypatch, tmp_path / "marks", ("loss", 14, 0, "poisoned"), ("begin", 18, 0, "kill"))
    store, events = Store(tmp_path / "found"), list[dict[str, Any]]()
    with workers_forked():
        artifact = micro.pretrain(config(1), store, hook=faults.HOOK, listener=events.append)
    found = [(incident["decision"], incident["step"], incident["draw"]) for incident in incidents(store, artifact)]
    assert found == [("roll back", 14, 14), ("exclude", 14, 14), ("relaunch", 17, None)]
    assert artifact.facts["excluded"] == [{"first": 14, "last": 15, "step": 15}]
    sequences = open_train(config(1), micro.tokens_artifact(store).path)
    (told,) = [event for event in events if event["kind"] == "excluded"]
    assert told["documents"] == documents_of_draw(sequences, 14) and len(told["documents"]["code"]) > 1

    known = Store(tmp_path / "known")
    run = RunDirectory(known.runs_path(micro.pretrain_job(config(1), known).key))
    run.path.mkdir(parents=True)
    write_exclusions(run.excluded, [Exclusion(first=14, last=15, step=15)])
    monkeypatch.delenv(faults.FAULTS)
    with workers_forked():
        again = micro.pretrain(config(1), known)
    assert metrics(again) == metrics(artifact)
    assert again.digest == artifact.digest
    assert state_digests(known) == state_digests(store)
