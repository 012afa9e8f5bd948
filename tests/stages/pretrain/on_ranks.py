"""The first step of a job on several ranks, looked at from within: run by torchrun from `test_parallel`.

Leaves gradients.npz (before clipping, gathered) and seen.json in the job's folder.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

from stages.pretrain.checkpoints.tensors import state_digest
from stages.pretrain.job import Job
from stages.pretrain.loop import measure, summed_loss, train_step
from stages.pretrain.parallel.spread import reduce_gradients
from stages.pretrain.setup import set_up
from stages.pretrain.supervision.processes import die_with_parent

WAITED = (0.25, 1.5, 0.0)  # seconds for data, by rank


def main(job: Job) -> None:
    training, state = set_up(job)
    model, ranks = training.model, training.ranks
    sharded = all(isinstance(parameter, DTensor) for parameter in model.parameters())
    local = sum(parameter.to_local().numel() for parameter in model.parameters() if isinstance(parameter, DTensor))
    digest = state_digest(training.tensors(), state.model_dump(mode="json"), reads=ranks.is_main)

    batch = training.train_feed.place(training.train.batch(0))
    reductions = []
    for last, rows in zip((False, True), batch.micro_batches, strict=True):
        reduce_gradients(model, last)
        with CommDebugMode() as communication:
            summed_loss(model, rows, attention=training.attention, vocabulary_size=training.vocabulary_size).backward()
        counts = communication.get_comm_counts()
        reductions.append(sum(count for operation, count in counts.items() if "reduce_scatter" in str(operation)))
    model.zero_grad(set_to_none=True)

    gradients: dict[str, np.ndarray] = {}

    def hook(point: str, step: int, rank: int, value: Any) -> Any:
        if point == "update":
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None
                whole = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
                gradients[name] = whole.numpy()
        return value

    heldout = measure(training, state.model_copy(update={"step": 10})).heldout_loss
    result = train_step(
        dataclasses.replace(training, hook=hook),
        batch,
        step=1,
        save_wanted=ranks.is_main,
        waited_seconds=WAITED[ranks.rank],
    )
    if ranks.is_main:
        np.savez(job.run.path / "gradients.npz", **gradients)
        seen = {**dataclasses.asdict(result), "sharded": sharded, "local": local, "digest": digest, "heldout": heldout}
        (job.run.path / "seen.json").write_text(
            json.dumps(
                {**seen, "reductions": reductions, "rows": sum(len(rows.inputs) for rows in batch.micro_batches)}
            )
        )
    ranks.leave()


if __name__ == "__main__":
    die_with_parent()
    torch.set_num_threads(1)
    main(Job.read(Path(sys.argv[1])))
