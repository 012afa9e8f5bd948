"""The command that is disturbed: the supervisor of a training of the micro model on two processes, fully sharded.

python -m tests.chaos.training STORE '{"checkpoint_seconds": 0.4}'
"""

import json
import sys
from pathlib import Path
from typing import Any

from stages.cli import run_and_exit
from stages.pretrain.config import PretrainConfig
from stages.store import Store
from tests.chaos.hook import HOOK
from tests.stages.pretrain import micro

STEPS = 80
DURABLE_STEPS = 20
# All of it but the number of steps only says how the training is made: every run has the digests of every other.
RECIPE: dict[str, Any] = {
    "num_processes": 2,
    "sharding": "full",
    "checkpoint_every_steps": DURABLE_STEPS,
    "checkpoint_seconds": 0.25,
    "max_relaunches": 20,
    "collective_timeout_seconds": 60.0,
    "collective_timeout_least_seconds": 0.6,
}


def config(settings: dict[str, Any]) -> PretrainConfig:
    return micro.config(**{"num_steps": STEPS, **RECIPE, **settings})


if __name__ == "__main__":
    root, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    run_and_exit(lambda: print(micro.pretrain(config(settings), Store(root), hook=HOOK).digest))
