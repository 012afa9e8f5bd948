"""Squared norms by group of parameters, over all ranks whatever the layout.

A row is summed in float32, rows are in float64. A sum of squares in float32 alone depends on the sharding by several
1e-6 (measured), and clipping hands that on to every weight: more than all other differences between the layouts
together. Rows are not cut by sharding; over them it is off by 1e-10 (measured), and costs little more than float32.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from stages.pretrain.optimise.groups import GROUPS, Group, group_of, local
from stages.pretrain.parallel.spread import unwrapped

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup


def squared_norms(model: "torch.nn.Module") -> "dict[Group, torch.Tensor]":
    """Those of the gradients, by group, as `squares_of` gives them. All ranks call it; the host does not wait."""
    gradients: dict[str, torch.Tensor] = {}
    for name, parameter in unwrapped(model).named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        gradients[name] = parameter.grad
    return squares_of(gradients)


def squares_of(tensors: "Mapping[str, torch.Tensor]") -> "dict[Group, torch.Tensor]":
    """Group -> float64 scalar on the device, with the same bits on every rank: the sum of squares of all that belongs
    to its parameters. tensors: one for each parameter of the model, by its name, sharded as the parameters are. Groups
    without a parameter are not in it.
    """
    one = next(iter(tensors.values()))
    return summed_squares(tensors, groups_of(tensors), over=shard_groups(one), device=link_device(one))


def summed_squares(
    tensors: "Mapping[str, torch.Tensor]",
    groups: Sequence[Group],
    *,
    over: "Sequence[ProcessGroup]",
    device: "torch.device",
) -> "dict[Group, torch.Tensor]":
    """The same for all `groups`, of any tensors by the names of their parameters. over: ranks that hold different parts
    of them, among which sums are added up, on `device`."""
    import torch
    import torch.distributed as dist

    rows: dict[Group, list[torch.Tensor]] = {group: [torch.zeros(1, device=device)] for group in groups}
    for name, tensor in tensors.items():
        part = local(tensor)
        of_rows = torch.linalg.vector_norm(part, dim=-1) if part.ndim > 1 else part
        rows[group_of(name)].append(of_rows.flatten().to(device))
    total = torch.stack([torch.cat(norms).double().square().sum() for norms in rows.values()])
    for group in over:
        dist.all_reduce(total, group=group)
    return dict(zip(groups, total.unbind(), strict=True))


def groups_of(names: "Iterable[str]") -> tuple[Group, ...]:
    """The groups of these parameters, in the order of GROUPS."""
    found = {group_of(name) for name in names}
    return tuple(group for group in GROUPS if group in found)


def link_device(tensor: "torch.Tensor") -> "torch.device":
    """Where collectives on a tensor take place: for shards that are offloaded to the host, not where they lie."""
    import torch
    from torch.distributed.tensor import DTensor

    return torch.device(tensor.device_mesh.device_type) if isinstance(tensor, DTensor) else tensor.device


def shard_groups(tensor: "torch.Tensor") -> "list[ProcessGroup]":
    """The ranks that hold the other shards of a tensor; none if it is whole. Replicas of a shard, as hybrid sharding
    has them, are not among them."""
    from torch.distributed.tensor import DTensor

    if not isinstance(tensor, DTensor):
        return []
    return [
        tensor.device_mesh.get_group(dimension)
        for dimension, placement in enumerate(tensor.placements)
        if placement.is_shard()
    ]
