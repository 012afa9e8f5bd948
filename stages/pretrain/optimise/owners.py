"""Optimizer states that lie on one process each, while parameters and gradients are whole on all of them.

torch's ZeroRedundancyOptimizer says which process updates which parameter and brings the updated ones to the others.
What an update is, it leaves to the optimizer that it is given, and that one to us.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stages.pretrain.optimise.groups import Weight

if TYPE_CHECKING:
    import torch


class Owners:
    """Who holds the states of which parameter. held: those of this process. ranks: by the name of the parameter, in
    `group`."""

    def __init__(self, weights: Sequence[Weight], device: "torch.device") -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.optim import ZeroRedundancyOptimizer

        class Deferred(torch.optim.Optimizer):
            """Does what `update` says."""

            update: Callable[[], None]

            def __init__(self, parameters: Any) -> None:
                super().__init__(parameters, {})

            def step(self, closure: Any = None) -> None:  # type: ignore[override]
                self.update()

        assert dist.group.WORLD is not None
        self.group = dist.group.WORLD
        self._zero = ZeroRedundancyOptimizer(
            [weight.parameter for weight in weights],
            optimizer_class=Deferred,
            parameters_as_bucket_view=True,
        )
        held = {id(parameter) for group in self._zero.optim.param_groups for parameter in group["params"]}
        self.held = [weight for weight in weights if id(weight.parameter) in held]
        mine = torch.tensor([id(weight.parameter) in held for weight in weights], dtype=torch.int64, device=device)
        owners = mine * dist.get_rank()
        dist.all_reduce(owners)
        dist.all_reduce(mine)
        assert bool((mine == 1).all()), "a parameter belongs to no process or to several"
        self.ranks = {weight.name: rank for weight, rank in zip(weights, owners.tolist(), strict=True)}

    def step(self, update: Callable[[], None]) -> None:
        """Let `update` change the parameters that are held here, and bring all of them to all processes."""
        self._zero.optim.update = update
        self._zero.step()
