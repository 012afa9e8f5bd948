"""Trainings on several ranks, one after the other in the same processes, for `equality`.

Each leaves in its job's folder gradients.npz (of the first step, before clipping, whole), its metrics, and seen.json:
what the layout made of model and communication.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

from stages.pretrain.checkpoints.checkpoint import TENSORS, StepState, fill, read_state
from stages.pretrain.checkpoints.tensors import state_digest
from stages.pretrain.job import Job
from stages.pretrain.loop import train
from stages.pretrain.monitor.records import Records
from stages.pretrain.parallel.spread import reducing, unwrapped
from stages.pretrain.setup import set_up
from stages.pretrain.step import Training, Wish
from tests.stages.pretrain.one_step import one_step

OTHER = "other"  # file in a job's folder with the path of a checkpoint that its training must be able to load
WAITED = (0.25, 1.5, 0.0, 0.5)  # seconds for data, by rank


def run_all(paths: Sequence[str]) -> None:
    """Carry the jobs of these job.json through, on this rank of all."""
    for path in paths:
        run(Job.read(Path(path)))
        forget()


def run(job: Job) -> None:
    training, state = set_up(job)
    digest = state_digest(training.tensors(), state.model_dump(mode="json"), reads=training.ranks.is_main)
    gradients: dict[str, np.ndarray] = {}

    def hook(point: str, step: int, rank: int, value: Any) -> Any:
        if (point, step) == ("update", 1):
            for name, parameter in unwrapped(training.model).named_parameters():
                assert parameter.grad is not None, name
                whole = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
                gradients[name] = (whole * value.item()).numpy(force=True).copy()
        return value

    with Records(job.run, writes=training.ranks.is_main) as records:
        state = train(dataclasses.replace(training, hook=hook), state, records)
    seen = {"digest": digest, "heldout": state.heldout_loss, "local_share": local_share(training.model)}
    seen["reductions"], seen["gathers"] = messages(training)
    wish = Wish.LEAVE if training.ranks.is_main else Wish.SAVE  # that of the main rank counts
    last = one_step(training, wish=wish, waited_seconds=WAITED[training.ranks.rank])
    seen |= {"waited": last.waited_seconds, "leaves": last.wish is Wish.LEAVE}
    if (other := job.run.path / OTHER).exists():
        seen["reloads"] = reloads(training, Path(other.read_text(encoding="utf-8")))
    if training.ranks.is_main:
        np.savez(job.run.path / "gradients.npz", **gradients)
        (job.run.path / "seen.json").write_text(json.dumps(seen))
    training.ranks.barrier()


def reloads(training: Training, directory: Path) -> bool:
    """Whether a checkpoint that another layout has saved is the same bits in this one."""
    state = read_state(directory)
    fill(directory / TENSORS, training.tensors())
    found = state_digest(training.tensors(), before_digest(state), reads=training.ranks.is_main)
    return not training.ranks.is_main or found == state.state_digest


def before_digest(state: StepState) -> dict[str, Any]:
    """What a durable checkpoint's digest is over, beside tensors."""
    return state.model_copy(update={"state_digest": ""}).model_dump(mode="json")


def local_share(model: torch.nn.Module) -> float:
    """The part of the weights that lies on this rank."""
    local = [p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
    return sum(p.numel() for p in local) / sum(p.numel() for p in model.parameters())


def messages(training: Training) -> tuple[list[int], list[int]]:
    """For each micro-batch of the first step, how often gradients were reduced over the ranks, and how often parameters
    were gathered from them."""
    fed = training.train_feed.place(training.train.batch(0))
    reductions, gathers = [], []
    for number, rows in enumerate(fed.micro_batches, start=1):
        with reducing(training.model, number == len(fed.micro_batches)), CommDebugMode() as communication:
            arguments = training.attention.arguments(rows.positions, rows.borders)
            objective, _ = training.model(input_ids=rows.inputs, targets=rows.targets, **arguments)
            objective.backward()
        counts = communication.get_comm_counts()
        reductions.append(sum(count for operation, count in counts.items() if "reduce" in str(operation)))
        gathers.append(sum(count for operation, count in counts.items() if "gather" in str(operation)))
    training.optimizer.zero_grad()
    return reductions, gathers


def forget() -> None:
    """Let the next training begin with the processes as they are, whatever the last one made of them."""
    AcceleratorState._reset_state()
    GradientState._reset_state()
