"""Two ranks of which the second is slow, then busy with a checkpoint, then hung, for `test_timeouts`. The first prints
what it has survived and how long it waited for the hung one.
"""

import json
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from stages.pretrain.parallel.ranks import Ranks
from stages.pretrain.parallel.timeouts import FIRST_STEPS, Timeouts
from tests.stages.pretrain import micro

START_SECONDS = 90.0
LEAST_SECONDS = 3.0


def main(store: str) -> None:
    """On one of the ranks. store: path of a file by which they meet."""
    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2, timeout=timedelta(seconds=START_SECONDS)
    )
    config = micro.config(
        num_processes=2, collective_timeout_seconds=START_SECONDS, collective_timeout_least_seconds=LEAST_SECONDS
    )
    ranks = Ranks(rank, 2, torch.device("cpu"))
    assert dist.group.WORLD is not None
    group = dist.new_group([0, 1])
    timeouts = Timeouts(config, ranks, [dist.group.WORLD, group])
    of_group = group._get_backend(ranks.device).options._timeout.total_seconds()
    ranks.barrier()
    for _ in range(FIRST_STEPS + 1):
        timeouts.took(0.1, "usual")
    timeouts.begin("usual")
    survived = []
    late(rank, LEAST_SECONDS / 4, ranks)
    survived.append("slow")
    with timeouts.relaxed():
        if rank == 1:
            time.sleep(1.5 * LEAST_SECONDS)
    survived.append("relaxed")
    began = time.monotonic()
    try:
        late(rank, 2 * START_SECONDS, ranks)
    except RuntimeError:
        print(
            json.dumps({"survived": survived, "waited": time.monotonic() - began, "group_seconds": of_group}),
            flush=True,
        )


def late(rank: int, seconds: float, ranks: Ranks) -> None:
    """A sum over both ranks that the second begins so much later."""
    if rank == 1:
        time.sleep(seconds)
    ranks.sum(ranks.tensor([1.0]))
