"""Whole runs that are spread over two processes."""

import signal
from pathlib import Path
from typing import Any

import pytest

from stages.pretrain import trial
from stages.pretrain.checkpoints.checkpoint import load_model
from stages.pretrain.job import RunDirectory, read_lines
from stages.store import Store
from tests.stages.pretrain import faults, micro
from tests.stages.pretrain.forked import workers_forked
from tests.stages.pretrain.runs import config, incidents, metrics, state_digests, stopped_supervisor


@pytest.mark.slow
def test_kills_and_a_nan_on_one_rank_change_nothing_in_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor is killed, then one rank within a step; a NaN on one rank takes all ranks back to a healthy
    checkpoint."""
    calm = Store(tmp_path / "calm")
    with workers_forked():
        undisturbed = micro.pretrain(config(2, asynchronous_checkpoints=True), calm)
    root = tmp_path / "disturbed"
    root.mkdir()
    assert stopped_supervisor(root, 2, signal.SIGKILL, monkeypatch) == -signal.SIGKILL
    faults.plan(monkeypatch, tmp_path / "marks", ("update", 12, 1, "kill"), ("loss", 15, 1, "nan"))
    store = Store(root)
    artifact = micro.pretrain(config(2), store, hook=faults.HOOK)
    killed, spoilt = incidents(store, artifact)
    assert (killed["exit_code"], killed["decision"], killed["resumed_step"] > 0) == (-9, "relaunch", True)
    assert (spoilt["exit_code"], spoilt["decision"], spoilt["step"]) == (70, "roll back", 14)
    assert "step 15: loss nan" in spoilt["cause"]
    run = RunDirectory(store.runs_path(artifact.key))
    aside = sorted(path.name for path in run.checkpoints.iterdir() if "unhealthy" in path.name)
    assert aside and all(int(name[5:13]) + 3 > 14 for name in aside), "rolled back to a step that was not proven"
    assert metrics(artifact) == metrics(undisturbed)
    assert artifact.digest == undisturbed.digest
    assert state_digests(store) == state_digests(calm)


def test_a_crash_is_told_with_the_log_and_two_processes_go_on_with_the_loss_curve_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches of several lengths, under both schedules."""
    curve = config(
        1,
        num_steps=50,
        warmup_ratio=0.5,
        packing="length-buckets",
        length_schedule=[{"from_step": 1, "longest_tokens": 4}, {"from_step": 11, "longest_tokens": 16}],
        mixture_schedule=[{"from_step": 31, "weights": {"code": 0.8, "prose": 0.2}}],
    )
    with workers_forked():
        one = micro.pretrain(curve, Store(tmp_path / "one"))
    store = Store(tmp_path / "two")
    faults.plan(monkeypatch, tmp_path / "marks", ("begin", 8, 0, "crash"))
    with pytest.raises(RuntimeError, match="an injected crash in step 8") as stopped:
        micro.pretrain(curve.model_copy(update={"max_relaunches": 0}), store, hook=faults.HOOK)
    assert "Last lines of" in str(stopped.value)
    assert list(store.all("checkpoint")) == []

    events: list[dict[str, Any]] = []
    with workers_forked():
        two = micro.pretrain(curve.model_copy(update={"num_processes": 2}), store, listener=events.append)
    assert one.key == two.key
    resumed = incidents(store, two)[0]["checkpoint_step"]
    assert 0 < resumed < 8
    assert min(event["step"] for event in events if event["kind"] == "metric") > resumed
    for a, b in zip(metrics(one), metrics(two), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["gradient_norm"] == pytest.approx(b["gradient_norm"], rel=1e-3)
        assert (a["step"], a["tokens"], a["learning_rate"]) == (b["step"], b["tokens"], b["learning_rate"])


def test_a_trial_runs_the_real_layout_in_a_scratch_folder(tmp_path: Path) -> None:
    tokens = micro.tokens_artifact(Store(tmp_path))
    before = {path for path in tmp_path.rglob("*")}
    schedule = {
        "packing": "length-buckets",
        "length_schedule": [{"from_step": 1, "longest_tokens": 4}],
        "batch_ramp": [{"from_step": 15, "batch_sequences": 60}],
    }
    found = trial(config(2, precision="bf16", **schedule), micro.MODEL, tokens.path, tmp_path / "scratch", steps=2)
    assert found["sequence_tokens"][-1] == 16, "the longest, although the training would begin with others"
    first, last = (line["tokens"] for line in read_lines(tmp_path / "scratch" / "metrics.jsonl"))
    assert first <= 6 * 16 < last - first <= 60 * 16, "the most sequences, although the training begins with fewer"
    assert len(found["losses"]) == len(found["seconds"]) == 2
    assert found["num_processes"] == 2
    assert found["peak_memory_bytes"] > 1e8
    assert found["checkpoint_bytes"] > 3 * 4 * found["parameters"]
    scratch = tmp_path / "scratch"
    assert not [path for path in tmp_path.rglob("*") if path not in before and scratch not in (path, *path.parents)]
    load_model(scratch / "checkpoints" / "step-00000002")
