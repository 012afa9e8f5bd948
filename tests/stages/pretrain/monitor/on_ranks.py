"""What the monitor says of a step, and of communication that is known, on two processes, for
`test_communication`.

Leaves rank-<n>.json in the job's folder.
"""

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from stages.pretrain.job import Job
from stages.pretrain.monitor import monitor
from stages.pretrain.monitor.communication import Profile, Traffic
from stages.pretrain.monitor.links import Links
from stages.pretrain.parallel.ranks import Ranks
from stages.pretrain.setup import set_up
from stages.pretrain.step import result, train_step

SIZE = 2
WIDTHS = (24, 60, 36)  # of the layers that follow one another
LATE_SECONDS = 0.4
DELAYED = 1  # the rank that sends late


def blocks() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in zip(WIDTHS, WIDTHS[1:] + WIDTHS[:1], strict=True)))


def profiled(act: Any) -> Traffic:
    profile = Profile(torch.device("cpu"), all_reduce_ranks=SIZE)
    act()
    return profile.stop()


def step_of(model: nn.Module) -> Any:
    inputs = torch.randn(5, WIDTHS[0])
    return lambda: model(inputs).square().sum().backward()


def replicated() -> Traffic:
    step = step_of(DistributedDataParallel(blocks()))
    step()  # after which DDP cuts its buckets anew
    return profiled(step)


def sharded() -> Traffic:
    mesh = init_device_mesh("cpu", (SIZE,))
    model = blocks()
    for block in model:
        fully_shard(block, mesh=mesh)
    step = step_of(fully_shard(model, mesh=mesh))
    step()
    return profiled(step)


def late(rank: int, *, computes: bool) -> dict[str, float]:
    """A collective that the other rank comes late to, while this one waits or computes; and how long it had to wait by
    the clock."""
    values, matrix = torch.ones(1000), torch.ones(300, 300)
    waited = 0.0

    def act() -> None:
        nonlocal waited
        if rank == DELAYED:
            time.sleep(LATE_SECONDS)
        work = dist.all_reduce(values, async_op=True)
        assert work is not None
        while computes and not work.is_completed():
            torch.mm(matrix, matrix)
        began = time.perf_counter()
        work.wait()
        waited = time.perf_counter() - began

    dist.barrier()
    seen = profiled(act)
    return {"seconds": seen.seconds, "exposed": seen.exposed_seconds, "waited": waited}


def lines(job: Job) -> tuple[Ranks, list[Any]]:
    """What the monitor writes about the first steps of a training, while one rank sends late."""
    late_seconds = LATE_SECONDS if int(os.environ["RANK"]) == DELAYED else 0.0
    monitor.Links = partial(Links, delay=partial(time.sleep, late_seconds))
    training, _ = set_up(job)
    written = []
    for step in range(1, 4):
        with training.monitor.step(step):
            numbers = train_step(training, training.train_feed.place(training.train.batch(step - 1)), step=step)
        found = result(training, numbers, step=step, draw=step - 1)
        written.append(training.monitor.lines(step, found, seconds=1.0))
    return training.ranks, written


def main(path: str) -> None:
    job = Job.read(Path(path))
    ranks, written = lines(job)
    found = {
        "metrics": [metrics for metrics, _ in written],
        "timing": [timing for _, timing in written],
        "replicated": replicated().sent_bytes,
        "sharded": sharded().sent_bytes,
        "parameters": sum(parameter.numel() for parameter in blocks().parameters()),
        "waits": late(ranks.rank, computes=False),
        "computes": late(ranks.rank, computes=True),
    }
    (job.run.path / f"rank-{ranks.rank}.json").write_text(json.dumps(found))
    ranks.leave()
