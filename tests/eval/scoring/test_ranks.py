import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_uneven_requests_over_three_ranks_end_and_count_each_item_once(tmp_path: Path) -> None:
    """Seven questions with choices on three ranks, by a model in which the ranks meet in every forward pass."""
    out = tmp_path / "out"
    out.mkdir()
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *launch, "tests.eval.scoring.on_ranks", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    zero, one, alone = (json.loads((out / f"{name}.json").read_text()) for name in ("0", "1", "alone"))
    assert zero["scores"] == pytest.approx(alone["scores"], abs=1e-4) and zero["scores"] == one["scores"]
    assert zero["greedy"] == alone["greedy"]
    assert zero["one"] == pytest.approx(alone["scores"][:1], abs=1e-4) and zero["none"] == 0
    assert zero["texts"] == one["texts"] == alone["texts"]
    assert zero["task"] == one["task"] == alone["task"] and len(alone["task"]["scores"]) == 7
    assert (zero["failure"], one["failure"]) == ("RankError", "OSError"), "no rank waits for one that failed"
