"""One training step in this process, what its gradient was, and a checkpoint at once."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from data.order.loader import Batch
from stages.pretrain.checkpoints.checkpoint import StepState, step_name
from stages.pretrain.monitor.records import Records
from stages.pretrain.parallel.spread import unwrapped
from stages.pretrain.step import StepResult, Training, result, train_step


def one_step(training: Training, batch: Batch | None = None, *, step: int = 1, **settings: Any) -> StepResult:
    """Make a step, on its own batch or on another one, and read what it gave."""
    fed = training.train_feed.place(batch or training.train.batch(step - 1))
    numbers = train_step(training, fed, step=step, **settings)
    return result(training, numbers, step=step, draw=training.draw(step - 1))


def saved(training: Training, state: StepState, records: Records) -> Path:
    """The folder of a checkpoint of `state`, which is there."""
    training.saver.begin(training.tensors(), state, durable=False, vouch=records.vouch)
    training.saver.staged()
    training.saver.finish()
    return training.checkpoints / step_name(state.step)


def with_gradients(
    training: Training, batch: Batch | None = None, *, step: int = 1, **settings: Any
) -> tuple[StepResult, dict[str, torch.Tensor]]:
    """The same, and the gradient of the mean loss before clipping, whole on every rank, by the names of the
    parameters."""
    seen: dict[str, torch.Tensor] = {}

    def hook(point: str, step: int, rank: int, value: Any) -> Any:
        if point == "update":
            for name, parameter in unwrapped(training.model).named_parameters():
                assert parameter.grad is not None, name
                whole = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
                seen[name] = whole.detach().clone() * value.item()
        return value

    return one_step(dataclasses.replace(training, hook=hook), batch, step=step, **settings), seen
