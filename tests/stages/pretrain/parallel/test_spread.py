import json
import os
import subprocess
import sys
from pathlib import Path

from stages.pretrain import worker
from stages.pretrain.supervision.attempt import environment
from stages.pretrain.supervision.processes import PARENT
from tests.stages.pretrain import micro
from tests.stages.pretrain.forked import start_ranks, wait_for_ranks

CONFIG = micro.config()


def test_processes_that_cannot_find_each_other_do_not_train_alone(tokens: Path, tmp_path: Path) -> None:
    job = micro.worker_job(CONFIG.model_copy(update={"num_processes": 2}), tokens, tmp_path)
    job.write()
    variables = environment(job.config)
    assert wait_for_ranks(start_ranks(worker.main, str(job.run.job), size=1, log=job.run.log, variables=variables)) == 1
    assert not (tmp_path / "metrics.jsonl").exists()
    record = json.loads((tmp_path / "failures" / "rank-00000.json").read_text())
    assert record["error"] == "AssertionError"


def test_a_launcher_whose_parent_is_gone_does_not_start() -> None:
    strange = {**environment(CONFIG), PARENT: str(os.getppid())}
    arguments = [sys.executable, "-m", "stages.pretrain.supervision.launcher"]
    assert subprocess.run(arguments, env=strange, stdin=subprocess.DEVNULL, timeout=60).returncode == 1
