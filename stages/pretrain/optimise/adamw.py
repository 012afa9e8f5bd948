"""AdamW (Loshchilov and Hutter, 2019, "Decoupled Weight Decay Regularization", algorithm 2), by torch's fused kernel.

Scaling, clipping and the guard are folded into its one pass: it divides gradients by `grad_scale` and leaves everything
alone where `found_inf` is 1. An update is elementwise, so it is called on what this rank holds of each tensor. All
parameters share one count of updates, which the kernel only reads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from stages.pretrain.config import PretrainConfig
from stages.pretrain.optimise.groups import Weight
from stages.pretrain.optimise.guarded import Update
from stages.pretrain.optimise.moments import EightBit, Moment, Plain

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class _Slot:
    """A parameter and its moments: decaying means of the gradient and of its square."""

    weight: Weight
    exp_avg: Moment
    exp_avg_sq: Moment
    is_plain: bool


class AdamW:
    """Over some parameters of a model."""

    def __init__(self, config: PretrainConfig, weights: Sequence[Weight]) -> None:
        self._config = config
        self._slots = [self._slot(weight) for weight in weights]

    def _slot(self, weight: Weight) -> _Slot:
        is_plain = self._config.optimizer_states == "fp32" or weight.parameter.ndim != 2
        return _Slot(
            weight=weight,
            exp_avg=Plain(weight) if is_plain else EightBit(weight, is_root=False),
            exp_avg_sq=Plain(weight) if is_plain else EightBit(weight, is_root=True),
            is_plain=is_plain,
        )

    def step(self, update: Update) -> None:
        """Update the weights by their gradients."""
        import torch

        config = self._config
        for slots in self._together():
            weight = slots[0].weight
            means, squares = [slot.exp_avg.read() for slot in slots], [slot.exp_avg_sq.read() for slot in slots]
            torch._fused_adamw_(
                [slot.weight.values for slot in slots],
                [slot.weight.gradient for slot in slots],
                means,
                squares,
                [],
                [update.count] * len(slots),
                lr=update.learning_rate * weight.learning_rate_ratio,
                beta1=config.beta1,
                beta2=config.beta2,
                weight_decay=weight.decay,
                eps=config.epsilon,
                amsgrad=False,
                maximize=False,
                grad_scale=update.factor.reciprocal(),
                found_inf=update.skip,
            )
            for slot, mean, square in zip(slots, means, squares, strict=True):
                slot.exp_avg.write(mean, update.skip)
                slot.exp_avg_sq.write(square, update.skip)

    def _together(self) -> Iterator[list[_Slot]]:
        """Parameters that one call of the kernel updates. Those whose moments are unpacked come one at a time, so that
        no more than its moments are held beside the packed ones."""

        def key(slot: _Slot) -> tuple[float, float, str]:
            weight = slot.weight
            return weight.decay, weight.learning_rate_ratio, "" if slot.is_plain else weight.name

        for _, slots in groupby(sorted(self._slots, key=key), key=key):
            yield list(slots)

    def tensors(self) -> "dict[str, torch.Tensor]":
        """Moments by <parameter>.<slot>."""
        return {
            f"{slot.weight.name}.{name}{suffix}": tensor
            for slot in self._slots
            for name, moment in (("exp_avg", slot.exp_avg), ("exp_avg_sq", slot.exp_avg_sq))
            for suffix, tensor in moment.tensors().items()
        }
