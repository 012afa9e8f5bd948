"""Muon (Jordan et al., 2024, "Muon: An optimizer for hidden layers in neural networks"): the momentum of a matrix is
replaced by the nearest orthogonal one before it is taken off.

    m <- mu m + g        u = g + mu m        W <- W - rate (0.2 sqrt(max(rows, columns)) orthogonal(u) + decay W)

The factor makes the root mean square of an update what AdamW's typically is, so that one learning rate and one weight
decay serve both (Liu et al., 2025, "Muon is Scalable for LLM Training", section 2.2).

Under maximal update parametrisation the greatest singular value of an update must not grow with the width (Yang et
al., 2023, "A Spectral Condition for Feature Learning"). That of AdamW's grows with r = width / base, and so its
learning rate is divided by r; that of ours grows with sqrt(r).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from stages.pretrain.config import PretrainConfig
from stages.pretrain.optimise.exchange import Team, compute_whole
from stages.pretrain.optimise.groups import Weight
from stages.pretrain.optimise.guarded import Update, approach, descend
from stages.pretrain.optimise.moments import EightBit, Moment, Plain

if TYPE_CHECKING:
    import torch

# Of the iteration X <- a X + (b A + c A A) X, A = X X^T: chosen for a steep slope at 0; singular values end between
# about 0.7 and 1.2, which does no harm.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
RMS_OF_ADAMW = 0.2


class Muon:
    """Over some matrices of a model."""

    def __init__(self, config: PretrainConfig, weights: Sequence[Weight], team: Team) -> None:
        self._momentum = config.muon_momentum
        self._weights = [_rated(weight) for weight in weights]
        self._team = team
        self._moments: list[Moment] = [
            Plain(weight) if config.optimizer_states == "fp32" else EightBit(weight, is_root=False)
            for weight in weights
        ]

    def step(self, update: Update) -> None:
        """Update the weights by their gradients, which are spent. All ranks of the team call it."""
        import torch

        gradients = [weight.gradient for weight in self._weights]
        torch._foreach_mul_(gradients, update.factor)
        for gradient, moment in zip(gradients, self._moments, strict=True):
            value = moment.read()
            approach([value], [gradient], rate=1.0, decay=1.0 - self._momentum, skip=update.skip)
            gradient.add_(value, alpha=self._momentum)
            moment.write(value, update.skip)
        # In bfloat16 the iteration is as good, and on a GPU several times as fast; a CPU gains nothing.
        dtype = torch.bfloat16 if self._team.device.type == "cuda" else torch.float32
        shapes = [(weight.parameter.shape[0], weight.parameter.shape[1]) for weight in self._weights]
        directions = compute_whole(self._team, gradients, shapes, update_of, dtype)

        def key(pair: "tuple[Weight, torch.Tensor]") -> tuple[float, float]:
            return pair[0].decay, pair[0].learning_rate_ratio

        pairs = zip(self._weights, directions, strict=True)
        for (decay, ratio), group in groupby(sorted(pairs, key=key), key=key):
            values, found = zip(*((weight.values, direction) for weight, direction in group), strict=True)
            descend(
                values,
                [direction.to(value.device, value.dtype) for value, direction in zip(values, found, strict=True)],
                rate=update.learning_rate * ratio,
                decay=decay,
                skip=update.skip,
            )

    def tensors(self) -> "dict[str, torch.Tensor]":
        """Momentum by <parameter>.momentum."""
        return {
            f"{weight.name}.momentum{suffix}": tensor
            for weight, moment in zip(self._weights, self._moments, strict=True)
            for suffix, tensor in moment.tensors().items()
        }


def _rated(weight: Weight) -> Weight:
    """With the ratio of the learning rate that is right here, from the one that is right for AdamW; what decay takes
    off in a step stays the same."""
    ratio = weight.learning_rate_ratio**0.5
    return replace(weight, learning_rate_ratio=ratio, decay=weight.decay * ratio)


def update_of(matrix: "torch.Tensor") -> "torch.Tensor":
    """The direction of an update: `orthogonalised`, scaled as above."""
    return orthogonalised(matrix) * (RMS_OF_ADAMW * max(matrix.shape) ** 0.5)


def orthogonalised(matrix: "torch.Tensor") -> "torch.Tensor":
    """About U V^T, of the singular value decomposition U S V^T of a matrix, in its dtype: by a Newton-Schulz iteration
    of the fifth order (Jordan et al., 2024). Zero of a zero matrix."""
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    found = matrix.T if is_tall else matrix
    found = found / (found.norm() + 1e-7)
    for _ in range(ITERATIONS):
        square = found @ found.T
        found = a * found + (b * square + c * square @ square) @ found
    return found.T if is_tall else found
