"""Updates in one pass over the memory that a flag on the device can turn into no update at all, bitwise.

    x <- x - rate * (direction + decay * x)

It is what torch's fused kernel for stochastic gradient descent does without momentum, and that kernel takes such a flag
for the sake of gradient scaling. A product with 0 would not do: it makes NaN of what is not finite, and 0 of -0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Update:
    """What all parts of an optimizer need to know of one step. learning_rate: before any ratio. factor: float32 scalar
    that gradients are to be multiplied by. skip: float32 scalar, 1.0 where nothing may change. count: float32 scalar,
    updates so far, this one among them. Scalars lie on the device of the weights."""

    learning_rate: float
    factor: "torch.Tensor"
    skip: "torch.Tensor"
    count: "torch.Tensor"


def descend(
    tensors: "Sequence[torch.Tensor]",
    directions: "Sequence[torch.Tensor]",
    *,
    rate: "float | torch.Tensor",
    decay: float,
    skip: "torch.Tensor",
) -> None:
    """Move `tensors` in place, as above. All are float32 and of one device; rate may be a scalar there."""
    _step(tensors, directions, rate, decay, skip, towards=False)


def approach(
    tensors: "Sequence[torch.Tensor]",
    targets: "Sequence[torch.Tensor]",
    *,
    rate: "float | torch.Tensor",
    decay: float,
    skip: "torch.Tensor",
) -> None:
    """The same with directions that are the negatives of `targets`: x <- x + rate * (target - decay * x)."""
    _step(tensors, targets, rate, decay, skip, towards=True)


def _step(
    tensors: "Sequence[torch.Tensor]",
    directions: "Sequence[torch.Tensor]",
    rate: "float | torch.Tensor",
    decay: float,
    skip: "torch.Tensor",
    *,
    towards: bool,
) -> None:
    import torch

    if tensors:
        torch._fused_sgd_(
            list(tensors),
            list(directions),
            [],
            weight_decay=decay,
            momentum=0.0,
            lr=rate,
            dampening=0.0,
            nesterov=False,
            maximize=towards,
            is_first_step=False,
            grad_scale=None,
            found_inf=skip,
        )
