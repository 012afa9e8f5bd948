import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from stages.pretrain.checkpoints.tensors import state_digest
from stages.pretrain.loop import measure, train_step
from stages.pretrain.supervision.attempt import command, environment
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build
from tests.stages.pretrain.on_ranks import WAITED

# 3 processes divide neither rows nor widths: one rank needs a micro-batch more, and only one has a held-out row.
CONFIG = micro.config(batch_sequences=10, micro_batch_sequences=2, gradient_clip_norm=1e9, heldout_sequences=1)


def on_three_ranks(tokens: Path, folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    job = micro.worker_job(CONFIG.model_copy(update={"num_processes": 3}), tokens, folder)
    job.write()
    arguments = [
        "tests.stages.pretrain.on_ranks" if part == "stages.pretrain.worker" else part for part in command(job)
    ]
    done = subprocess.run(arguments, env=environment(job.config), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "gradients.npz") as stored:
        return json.loads((folder / "seen.json").read_text()), dict(stored)


def test_three_uneven_ranks_make_the_step_of_one(build: Build, tokens: Path, tmp_path: Path) -> None:
    training, state = build(CONFIG)
    digest = state_digest(training.tensors(), state.model_dump(mode="json"))
    expected: dict[str, np.ndarray] = {}

    def hook(point: str, step: int, rank: int, value: Any) -> Any:
        if point == "update":
            expected.update({name: p.grad.numpy().copy() for name, p in training.model.named_parameters()})
        return value

    heldout = measure(training, state.model_copy(update={"step": 10})).heldout_loss
    batch = training.train_feed.place(training.train.batch(0))
    one = train_step(dataclasses.replace(training, hook=hook), batch, step=1, save_wanted=False)
    seen, found = on_three_ranks(tokens, tmp_path / "three")

    assert seen["sharded"]
    assert seen["local"] < 0.5 * sum(parameter.numel() for parameter in training.model.parameters())
    assert seen["digest"] == digest, "the initial state depends on the number of processes"
    assert seen["rows"] == 3
    assert seen["reductions"][0] == 0 < seen["reductions"][1]
    assert (seen["tokens"], seen["save_wanted"]) == (one.tokens, True)
    assert seen["waited_seconds"] == max(WAITED) > WAITED[0], "the rank that waits longest is not the main one"
    assert abs(seen["loss"] / one.loss - 1) < 1e-6
    assert abs(seen["heldout"] / heldout - 1) < 1e-6
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        assert np.linalg.norm(found[name] - gradient) < 1e-5 * np.linalg.norm(gradient), name


def test_processes_that_cannot_find_each_other_do_not_train_alone(tokens: Path, tmp_path: Path) -> None:
    job = micro.worker_job(CONFIG.model_copy(update={"num_processes": 2}), tokens, tmp_path)
    job.write()
    arguments = [sys.executable, "-m", "stages.pretrain.worker", str(job.run.job)]
    done = subprocess.run(arguments, env=environment(job.config), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert not (tmp_path / "metrics.jsonl").exists()
    record = json.loads((tmp_path / "failures" / "rank-00000.json").read_text())
    assert record["error"] == "AssertionError"


def test_a_worker_whose_parent_is_gone_does_not_start(tokens: Path, tmp_path: Path) -> None:
    job = micro.worker_job(CONFIG, tokens, tmp_path)
    job.write()
    strange = {**environment(job.config), "LONGHAUL_PARENT_PID": str(os.getppid())}
    arguments = [sys.executable, "-m", "stages.pretrain.worker", str(job.run.job)]
    assert subprocess.run(arguments, env=strange, timeout=60).returncode == 1
    assert not (tmp_path / "failures").exists()
