"""Whole runs with real worker processes: killed, resumed, spread over two processes.

Local checkpoints are taken every few milliseconds here, so that a kill finds one to go on from, a step or two back.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stages.pretrain import trial
from stages.pretrain.batches.documents import documents_of_draw
from stages.pretrain.batches.exclusions import Exclusion, write_exclusions
from stages.pretrain.batches.sequences import open_train
from stages.pretrain.checkpoints.checkpoint import load_model
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory, read_lines
from stages.store import Artifact, Store
from tests.stages.pretrain import faults, micro

STEPS = 20
SEED = 20


def config(num_processes: int, **changes: Any) -> PretrainConfig:
    return micro.config(num_steps=STEPS, num_processes=num_processes, checkpoint_seconds=1e-3, **changes)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Artifact]:
    """The artifact of a run that nothing happens to, by the number of processes."""
    made: dict[int, Artifact] = {}

    def run(num_processes: int) -> Artifact:
        if num_processes not in made:
            made[num_processes] = micro.pretrain(config(num_processes), Store(tmp_path_factory.mktemp("undisturbed")))
        return made[num_processes]

    return run


def metrics(artifact: Artifact) -> list[dict[str, Any]]:
    return read_lines(artifact.path / "metrics.jsonl")


def incidents(store: Store, artifact: Artifact) -> list[dict[str, Any]]:
    return read_lines(RunDirectory(store.runs_path(artifact.key)).incidents)


def state_digests(store: Store) -> list[str]:
    return sorted(artifact.facts["state_digest"] for artifact in store.all("checkpoint"))


def test_a_run_learns_and_leaves_artifacts_that_load(undisturbed: Callable[[int], Artifact]) -> None:
    artifact = undisturbed(1)
    lines = metrics(artifact)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert [line["tokens"] for line in lines] == [step * 96 for step in range(1, STEPS + 1)]
    assert artifact.facts["num_steps"] == STEPS
    assert artifact.facts["first_loss"] == lines[0]["loss"]
    assert artifact.facts["final_loss"] == lines[-1]["loss"] < 0.9 * lines[0]["loss"]
    store = Store(artifact.path.parents[2])
    checkpoints = list(store.all("checkpoint"))
    assert [entry["step"] for entry in artifact.facts["checkpoints"]] == [10, 20]
    assert {entry["digest"] for entry in artifact.facts["checkpoints"]} == {found.digest for found in checkpoints}
    model = load_model(store.find("checkpoint", artifact.facts["checkpoints"][-1]["key"]).path)
    padding = (micro.PADDED - micro.VOCABULARY) * micro.MODEL.hidden_size
    assert sum(parameter.numel() for parameter in model.parameters()) == artifact.facts["parameters"] - padding


def test_two_processes_give_the_loss_curve_of_one(tmp_path: Path) -> None:
    """In batches of several lengths, under both schedules."""
    curve = micro.config(
        num_steps=50,
        warmup_ratio=0.5,
        packing="length-buckets",
        length_schedule=[{"from_step": 1, "longest_tokens": 4}, {"from_step": 11, "longest_tokens": 16}],
        mixture_schedule=[{"from_step": 31, "weights": {"code": 0.8, "prose": 0.2}}],
    )
    one = micro.pretrain(curve, Store(tmp_path / "one"))
    two = micro.pretrain(curve.model_copy(update={"num_processes": 2}), Store(tmp_path / "two"))
    assert one.key == two.key
    for a, b in zip(metrics(one), metrics(two), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["gradient_norm"] == pytest.approx(b["gradient_norm"], rel=1e-3)
        assert (a["step"], a["tokens"], a["learning_rate"]) == (b["step"], b["tokens"], b["learning_rate"])


@pytest.mark.parametrize("num_processes", [1, 2])
def test_killed_workers_change_nothing_in_the_result(
    undisturbed: Callable[[int], Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_processes: int
) -> None:
    moments = random.Random(SEED + num_processes)
    step, rank = moments.randint(2, STEPS - 1), moments.randrange(num_processes)
    points = [("update", step, rank, "kill")] + ([("written", STEPS, 0, "kill")] if num_processes == 1 else [])
    faults.plan(monkeypatch, tmp_path / "marks", *points)
    store = Store(tmp_path)
    killed = micro.pretrain(config(num_processes), store, hook=faults.HOOK)
    found = incidents(store, killed)
    assert [(incident["decision"], incident["exit_code"]) for incident in found] == [("relaunch", -9)] * len(points)
    assert metrics(killed) == metrics(undisturbed(num_processes))
    assert killed.digest == undisturbed(num_processes).digest
    assert state_digests(store) == state_digests(Store(undisturbed(num_processes).path.parents[2]))


def test_a_nan_on_one_rank_takes_all_ranks_back_to_a_healthy_checkpoint(
    undisturbed: Callable[[int], Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.plan(monkeypatch, tmp_path / "marks", ("loss", 15, 1, "nan"))
    store = Store(tmp_path)
    artifact = micro.pretrain(config(2), store, hook=faults.HOOK)
    (incident,) = incidents(store, artifact)
    assert (incident["exit_code"], incident["decision"], incident["step"]) == (70, "roll back", 14)
    assert "step 15: loss nan" in incident["cause"]
    run = RunDirectory(store.runs_path(artifact.key))
    aside = sorted(path.name for path in run.checkpoints.iterdir() if "unhealthy" in path.name)
    assert aside and all(int(name[5:13]) + 3 > 14 for name in aside), "rolled back to a step that was not proven"
    assert artifact.digest == undisturbed(2).digest


def test_a_batch_that_is_never_finite_is_left_out_and_the_run_is_that_of_one_that_never_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.plan(monkeypatch, tmp_path / "marks", ("loss", 14, 0, "poisoned"), ("begin", 18, 0, "kill"))
    store, events = Store(tmp_path / "found"), list[dict[str, Any]]()
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
    again = micro.pretrain(config(1), known)
    assert metrics(again) == metrics(artifact)
    assert again.digest == artifact.digest
    assert state_digests(known) == state_digests(store)


def test_a_crash_is_told_with_the_log_and_another_number_of_processes_goes_on(
    undisturbed: Callable[[int], Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.plan(monkeypatch, tmp_path / "marks", ("begin", 12, 0, "crash"))
    store = Store(tmp_path)
    with pytest.raises(RuntimeError, match="an injected crash in step 12") as stopped:
        micro.pretrain(config(1, max_relaunches=0), store, hook=faults.HOOK)
    assert "Last lines of" in str(stopped.value)
    assert len(list(store.all("checkpoint"))) in (0, 1)
    events: list[dict[str, Any]] = []
    artifact = micro.pretrain(config(2), store, listener=events.append)
    resumed = read_lines(RunDirectory(store.runs_path(artifact.key)).incidents)[0]["checkpoint_step"]
    assert 0 < resumed < 12
    assert min(event["step"] for event in events if event["kind"] == "metric") > resumed
    for a, b in zip(metrics(artifact), metrics(undisturbed(1)), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert (a["learning_rate"], a["tokens"]) == (b["learning_rate"], b["tokens"])


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """Starts a supervisor as a process of its own, on `tmp_path`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(num_processes: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.stages.pretrain.micro", str(tmp_path), "checkpoint_seconds=0.001"]
        command += [f"num_processes={num_processes}", f"num_steps={STEPS}"]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "num_processes"), [(signal.SIGTERM, 1), (signal.SIGKILL, 2)])
def test_nothing_outlives_the_supervisor_and_the_next_one_ends_what_it_began(
    undisturbed: Callable[[int], Artifact],
    tmp_path: Path,
    supervisor: Callable[[int], subprocess.Popen[bytes]],
    number: int,
    num_processes: int,
) -> None:
    process = supervisor(num_processes)
    wait_for(lambda: bool(list((tmp_path / "runs").glob("*/checkpoints/step-0000000?"))), "a checkpoint")
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= (num_processes + 1 if num_processes > 1 else 1)
    os.kill(process.pid, number)
    assert process.wait(20) == (128 + number if number == signal.SIGTERM else -number)
    wait_for(lambda: not any(alive(member) for member in family), "the end of all processes")
    again, _ = supervisor(num_processes).communicate(timeout=120)
    assert again.decode().strip() == undisturbed(num_processes).digest


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not come within {seconds} s"
        time.sleep(0.02)


def test_a_trial_runs_the_real_layout_in_a_scratch_folder(tmp_path: Path) -> None:
    tokens = micro.tokens_artifact(Store(tmp_path))
    before = {path for path in tmp_path.rglob("*")}
    schedule = {"packing": "length-buckets", "length_schedule": [{"from_step": 1, "longest_tokens": 4}]}
    found = trial(config(2, precision="bf16", **schedule), micro.MODEL, tokens.path, tmp_path / "scratch", steps=2)
    assert found["sequence_tokens"][-1] == 16, "the longest, although the training would begin with others"
    assert len(found["losses"]) == len(found["seconds"]) == 2
    assert found["num_processes"] == 2
    assert found["peak_memory_bytes"] > 1e8
    assert found["checkpoint_bytes"] > 3 * 4 * found["parameters"]
    scratch = tmp_path / "scratch"
    assert not [path for path in tmp_path.rglob("*") if path not in before and scratch not in (path, *path.parents)]
    load_model(scratch / "checkpoints" / "step-00000002")
