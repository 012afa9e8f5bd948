"""The optimizer of a training: from gradients to weights on the device, without the host waiting for anything.

A step with `skip` set changes nothing at all, bitwise: neither weights, nor moments, nor their average, nor the count
of updates. Everything works on what this rank holds of each tensor; only Muon needs whole matrices for a while.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from stages.pretrain.checkpoints.tensors import Held
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.optimise.adamw import AdamW
from stages.pretrain.optimise.average import Average
from stages.pretrain.optimise.exchange import team_of
from stages.pretrain.optimise.groups import Group, Weight, is_layer_matrix, on_meta, weights
from stages.pretrain.optimise.guarded import Update
from stages.pretrain.optimise.muon import Muon
from stages.pretrain.optimise.norms import groups_of, link_device, shard_groups, summed_squares
from stages.pretrain.optimise.owners import Owners

if TYPE_CHECKING:
    import torch

    from stages.pretrain.parallel.layout import Layout


class Rule(Protocol):
    """What updates some of the parameters."""

    def step(self, update: Update) -> None:
        """Change the weights by their gradients, and the states with them."""
        ...

    def tensors(self) -> "dict[str, torch.Tensor]":
        """States by <parameter>.<slot>."""
        ...


@dataclass(frozen=True)
class _Part:
    """What updates some weights, and their average."""

    rules: tuple[Rule, ...]
    average: Average | None

    def step(self, update: Update) -> None:
        for rule in self.rules:
            rule.step(update)
        if self.average is not None:
            self.average.step(update)

    def tensors(self) -> "dict[str, torch.Tensor]":
        found: dict[str, torch.Tensor] = {}
        for rule in self.rules:
            found |= {f"optimizer.{name}": tensor for name, tensor in rule.tensors().items()}
        if self.average is not None:
            found |= {f"ema.{name}": tensor for name, tensor in self.average.tensors().items()}
        return found


class Optimizer:
    """The parameters of a model with what updates them."""

    def __init__(
        self, config: PretrainConfig, weights: Sequence[Weight], *, is_replicated: bool, owners: Owners | None
    ) -> None:
        """is_replicated: whether all ranks hold whole parameters. owners: of states that lie on one rank each."""
        self._config = config
        self._weights = weights
        self._held = weights if owners is None else owners.held
        self._owners = owners
        self._shares_matrices = is_replicated and owners is None
        self._part: _Part | None = None

    def create_state(self) -> None:
        """Make the states of update 0, so that a checkpoint always holds, and a load always fills, all of them."""
        import torch

        assert self._part is None, "the optimizer has state already"
        self._count = torch.zeros((), dtype=torch.float32, device=self._weights[0].values.device)
        self._part = self._made(self._held)

    def _made(self, weights: Sequence[Weight]) -> _Part:
        config = self._config
        is_muon = [config.optimizer == "muon" and is_layer_matrix(of.name, of.parameter.ndim) for of in weights]
        matrices = [weight for weight, by_muon in zip(weights, is_muon, strict=True) if by_muon]
        others = [weight for weight, by_muon in zip(weights, is_muon, strict=True) if not by_muon]
        rules: list[Rule] = [AdamW(config, others)] if others else []
        if matrices:
            rules.append(Muon(config, matrices, team_of(matrices[0].parameter, is_replicated=self._shares_matrices)))
        return _Part(tuple(rules), Average(weights, config.ema_decay) if config.ema_decay else None)

    def step(
        self, *, learning_rate: float, factor: "torch.Tensor", skip: "torch.Tensor", measure: bool = False
    ) -> "dict[Group, torch.Tensor]":
        """Update the weights by their gradients times `factor` (a scalar on the device), unless `skip` (bool scalar
        there) is true: then nothing changes, whatever the gradients and the factor are. Gradients are spent.

        Returns, if `measure`, group -> float64 scalar: the squared norm of the update, over all ranks; else nothing.
        """
        import torch

        assert self._part is not None, "the optimizer has no state"
        device = self._count.device  # the host, where weights are offloaded to it
        skipped = skip.to(device).float()
        with torch.no_grad():
            before = {weight.name: weight.values.clone() for weight in self._held} if measure else {}
            self._count += 1.0 - skipped
            update = Update(learning_rate, factor.to(device).float(), skipped, self._count)
            if self._owners is None:
                self._part.step(update)
            else:
                self._owners.step(partial(self._part.step, update))
            if not measure:
                return {}
            for weight in self._held:
                before[weight.name] -= weight.values
            return self._squares(before)

    def _squares(self, updates: "dict[str, torch.Tensor]") -> "dict[Group, torch.Tensor]":
        over = shard_groups(self._weights[0].parameter) if self._owners is None else [self._owners.group]
        groups = groups_of(weight.name for weight in self._weights)
        return summed_squares(updates, groups, over=over, device=link_device(self._weights[0].parameter))

    def zero_grad(self) -> None:
        """Free the gradients."""
        for weight in self._weights:
            weight.parameter.grad = None

    def tensors(self) -> "dict[str, torch.Tensor | Held]":
        """The state by logical name, the same names on every rank, sharing its memory: optimizer.step, the number of
        updates; optimizer.<parameter>.<slot>; and ema.<parameter>, the average of the weights."""
        assert self._part is not None, "the optimizer has no state"
        found: dict[str, torch.Tensor | Held] = {"optimizer.step": self._count}
        if self._owners is None:
            return found | self._part.tensors()
        here = self._part.tensors()
        for weight in self._weights:
            for name, like in self._made([on_meta(weight)]).tensors().items():
                found[name] = Held(
                    holder=self._owners.ranks[weight.name],
                    shape=tuple(like.shape),
                    dtype=like.dtype,
                    device=self._count.device,
                    tensor=here.get(name),
                )
        return found


def build_optimizer(
    config: PretrainConfig, shape: ModelConfig, model: "torch.nn.Module", layout: "Layout"
) -> Optimizer:
    """The optimizer that `config` asks for, over a model that is spread already. Its state is still to be made. shape:
    resolved."""
    found = weights(config, shape, model)
    owners = Owners(found, found[0].parameter.device) if layout.shards_states_only else None
    return Optimizer(config, found, is_replicated=layout.kind == "replicated", owners=owners)
