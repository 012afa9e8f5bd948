"""One training step in this process, and what its gradient was."""

import dataclasses
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from data.order.loader import Batch
from stages.pretrain.parallel.spread import unwrapped
from stages.pretrain.step import StepResult, Training, result, train_step


def one_step(training: Training, batch: Batch | None = None, *, step: int = 1, **settings: Any) -> StepResult:
    """Make a step, on its own batch or on another one, and read what it gave."""
    fed = training.train_feed.place(batch or training.train.batch(step - 1))
    numbers = train_step(training, fed, step=step, **settings)
    return result(training, numbers, step=step, draw=training.draw(step - 1))


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
