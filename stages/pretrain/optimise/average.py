"""An exponential moving average of the weights, which evaluates better than the weights themselves while the learning
rate is high (Polyak and Juditsky, 1992; Izmailov et al., 2018).

Early on it forgets faster than `decay` says, by (1 + n) / (10 + n) after n updates, so that a short training does not
end with an average that the first weights still dominate.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stages.pretrain.optimise.groups import Weight, local
from stages.pretrain.optimise.guarded import Update, approach

if TYPE_CHECKING:
    import torch


class Average:
    """Of some parameters, in float32 and sharded as they are. Begins as the weights are."""

    def __init__(self, weights: Sequence[Weight], decay: float) -> None:
        self._weights = weights
        self._decay = decay
        self._averages = [weight.parameter.detach().clone() for weight in weights]

    def step(self, update: Update) -> None:
        """Take in the weights after an update."""
        rate = (9.0 / (10.0 + update.count)).clamp(min=1.0 - self._decay)
        averages = [local(average) for average in self._averages]
        approach(averages, [weight.values for weight in self._weights], rate=rate, decay=1.0, skip=update.skip)

    def tensors(self) -> "dict[str, torch.Tensor]":
        """By the names of the parameters."""
        return {weight.name: average for weight, average in zip(self._weights, self._averages, strict=True)}
