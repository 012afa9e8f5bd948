"""One process of `make bench-checkpoint`: a training whose saves are timed, by turns with those of dcp.save.

python -m tests.benchmarks.checkpoint_rank JOB_JSON OUTPUT ROUNDS
"""

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from stages.pretrain.batches.feed import Fed
from stages.pretrain.checkpoints.tensors import here, vouched_for, wholes
from stages.pretrain.job import Job, read_lines
from stages.pretrain.loop import Loop
from stages.pretrain.monitor.records import Records
from stages.pretrain.setup import set_up
from stages.pretrain.step import Training

UNDISTURBED_STEPS = 4  # of each round, before a save


class Side:
    """A training, of which steps and saves are timed on this rank."""

    def __init__(self, training: Training, loop: Loop) -> None:
        self._training, self._loop = training, loop
        self._batches = self._endless()

    def _endless(self) -> Iterator[Fed]:
        step = 0
        while True:
            yield self._training.train_feed.place(self._training.train.batch(step))
            step += 1

    def step(self) -> float:
        """Seconds that a step takes, its wait for a copy among them."""
        began = time.perf_counter()
        self._loop.start()
        self._loop.take(next(self._batches), 0.0)
        return time.perf_counter() - began

    def synchronous(self, folder: Path) -> float:
        """Seconds that dcp.save takes, from the first rank's begin to the last one's end."""
        tensors = here(self._training.tensors())
        dist.barrier()
        began = time.perf_counter()
        dcp.save(tensors, storage_writer=dcp.FileSystemWriter(str(folder), sync_files=True))
        dist.barrier()
        seconds = time.perf_counter() - began
        dist.barrier()
        if self._training.ranks.is_main:
            shutil.rmtree(folder)
        return seconds

    def asynchronous(self) -> dict[str, Any]:
        """Seconds that a save has held the training up, and those of the steps beside it."""
        saver = self._training.saver
        dist.barrier()
        before = saver.blocked_seconds
        self._loop.save(durable=False)
        beside = []
        while _any(saver.in_flight):
            beside.append(self.step())
        saver.finish()
        return {"blocked": saver.blocked_seconds - before, "beside": beside}


def _any(value: bool) -> bool:
    import torch

    found = torch.tensor(float(value))
    dist.all_reduce(found)
    return bool(found)


def main(job_path: str, output: str, rounds: int) -> None:
    job = Job.read(Path(job_path))
    training, state = set_up(job)
    rank = training.ranks.rank
    found: list[dict[str, Any]] = []
    with Records(job.run, writes=training.ranks.is_main) as records:
        side = Side(training, Loop(training, state, records))
        for number in range(rounds + 1):  # the first one warms up
            undisturbed = [side.step() for _ in range(UNDISTURBED_STEPS)]
            synchronous = side.synchronous(job.run.path / f"synchronous-{number}")
            side.step()  # behind the barrier, and when the disk is at rest
            found.append(
                {
                    "undisturbed": statistics.median(undisturbed),
                    "synchronous": synchronous,
                    **side.asynchronous(),
                }
            )
            dist.barrier()
            if training.ranks.is_main:
                for path in job.run.checkpoints.iterdir():
                    shutil.rmtree(path)
            dist.barrier()
    tensors = training.tensors()
    own = vouched_for(tensors, wholes(tensors, training.ranks.size), rank)
    result = {
        "rounds": found[1:],
        "bytes": sum(tensor.nbytes for tensor in own.values()),
        "saves": read_lines(job.run.saves)[1:],
    }
    Path(output).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)
