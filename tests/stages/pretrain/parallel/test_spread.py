import json
import os
import subprocess
import sys
from pathlib import Path

from stages.pretrain.supervision.attempt import environment
from tests.stages.pretrain import micro

CONFIG = micro.config()


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
