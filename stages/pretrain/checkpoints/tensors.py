"""The logical tensors of a training state, by name, and their digest.

    model.<parameter>            float32, as transformers names it; tied weights once
    optimizer.<...>, ema.<...>   see stages.pretrain.optimise.optimizer

A tensor is either on every rank (whole, or as a DTensor in shards), or held by one rank alone (`Held`). The digest is
over names, dtypes, shapes and values. It knows nothing of files, of ranks or of who holds what.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

MESSAGE_BYTES = 16 << 20  # of a tensor, from one rank to another


@dataclass(frozen=True)
class Held:
    """A tensor that the rank `holder` has, whole, and no other. tensor: there; on the other ranks None. All ranks know
    its shape, its dtype and the device that it lies on."""

    holder: int
    shape: tuple[int, ...]
    dtype: "torch.dtype"
    device: "torch.device"
    tensor: "torch.Tensor | None"


if TYPE_CHECKING:
    State = Mapping[str, torch.Tensor | Held]


def model_tensors(model: "torch.nn.Module") -> dict[str, "torch.Tensor"]:
    """Parameters and persistent buffers of `model`, sharing its memory; DTensors where it is sharded. Names are those
    of the module that is wrapped, if one is."""
    from stages.pretrain.parallel.spread import unwrapped

    model = unwrapped(model)
    found = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                found[f"model.{prefix}.{name}" if prefix else f"model.{name}"] = buffer
    return found


def here(state: "State") -> dict[str, "torch.Tensor"]:
    """What this rank has of a state: to be saved by it, or to be filled."""
    found = {}
    for name, value in state.items():
        tensor = value.tensor if isinstance(value, Held) else value
        if tensor is not None:
            found[name] = tensor
    return found


def poison(tensors: "Mapping[str, torch.Tensor]") -> None:
    """Fill what is about to be loaded with NaN, integers with their largest value, so that a value which the load does
    not set cannot pass for a good one."""
    import torch

    with torch.no_grad():
        for tensor in tensors.values():
            tensor.fill_(float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).max)


@dataclass(frozen=True)
class Part:
    """Rows of a tensor that one rank vouches for, from `first_row` on; shape: of these rows. All of a tensor without
    dimensions."""

    rank: int
    first_row: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Whole:
    """What every rank knows of a tensor. parts: in the order of their rows, each row once, none of them empty."""

    shape: tuple[int, ...]
    dtype: "torch.dtype"
    parts: tuple[Part, ...]

    def part_of(self, rank: int) -> Part | None:
        return next((part for part in self.parts if part.rank == rank), None)


def wholes(state: "State", num_ranks: int) -> dict[str, Whole]:
    """Who vouches for which rows of which tensor, in the order of their names and the same on every rank. What several
    ranks have is dealt to those with the fewest bytes so far, the largest tensors first."""
    loads = [0] * num_ranks
    found = {}
    for name in sorted(state, key=lambda name: (-_num_bytes(state[name]), name)):
        value = state[name]
        shape = tuple(value.shape)
        ranks = min(_holders(value, num_ranks), key=lambda ranks: loads[ranks[0]])
        parts = _rows(shape, ranks)
        for part in parts:
            loads[part.rank] += math.prod(part.shape) * value.dtype.itemsize
        found[name] = Whole(shape, value.dtype, parts)
    return dict(sorted(found.items()))


def vouched_for(state: "State", parts: Mapping[str, Whole], rank: int) -> dict[str, "torch.Tensor"]:
    """The rows that this rank vouches for, by name, sharing the memory of the state."""
    from torch.distributed.tensor import DTensor

    found = {}
    for name, whole in parts.items():
        part = whole.part_of(rank)
        if part is None:
            continue
        value = state[name]
        tensor = value.tensor if isinstance(value, Held) else value
        assert tensor is not None, f"rank {rank} does not hold {name}"
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        assert tuple(local.shape) == part.shape, f"{name} has rows {list(local.shape)} here, not {list(part.shape)}"
        found[name] = local.detach()
    return found


def state_digest(state: "State", step_state: Mapping[str, Any], *, reads: bool = True) -> str:
    """`digest` of a state as it is; all ranks call it. Those for which `reads` is false, which are all but rank 0,
    return ""."""
    import torch.distributed as dist

    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    assert reads == (rank == 0), "rank 0 reads, and no other"
    parts = wholes(state, size)
    return digest(parts, vouched_for(state, parts, rank), step_state, rank=rank)


def digest(
    parts: Mapping[str, Whole],
    mine: "Mapping[str, torch.Tensor]",
    step_state: Mapping[str, Any],
    *,
    rank: int,
    group: "ProcessGroup | None" = None,
) -> str:
    """sha256, in hex, over all tensors in the order of their names and over `step_state` (JSON), on rank 0; on others
    "".

    mine: what this rank vouches for. The others send it to rank 0, by way of the host and over `group`, in which ranks
    are numbered as in the world.
    """
    import torch
    import torch.distributed as dist

    sha, received = hashlib.sha256(), torch.empty(MESSAGE_BYTES, dtype=torch.uint8)
    for name in sorted(parts):
        whole = parts[name]
        sha.update(f"{name} {whole.dtype} {list(whole.shape)}\n".encode())
        for part in whole.parts:
            if part.rank == rank:
                content = mine[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                for message in content.split(MESSAGE_BYTES):
                    if rank == 0:
                        sha.update(message.numpy().data)
                    else:
                        dist.send(message, dst=0, group=group)
            elif rank == 0:
                left = math.prod(part.shape) * whole.dtype.itemsize
                while left:
                    message = received[: min(left, MESSAGE_BYTES)]
                    dist.recv(message, src=part.rank, group=group)
                    sha.update(message.numpy().data)
                    left -= len(message)
    sha.update(json.dumps(step_state, sort_keys=True, allow_nan=False).encode())
    return sha.hexdigest() if rank == 0 else ""


def _num_bytes(value: "torch.Tensor | Held") -> int:
    return math.prod(value.shape) * value.dtype.itemsize


def _holders(value: "torch.Tensor | Held", num_ranks: int) -> list[list[int]]:
    """Groups of ranks that hold all rows of a tensor among them, each rank as many as torch.chunk gives it."""
    from torch.distributed.tensor import DTensor

    if isinstance(value, Held):
        return [[value.holder]]
    if not isinstance(value, DTensor):
        return [[rank] for rank in range(num_ranks)]
    sharded = [place for place, placement in enumerate(value.placements) if not placement.is_replicate()]
    by_rows = len(sharded) <= 1 and all(value.placements[place].is_shard(0) for place in sharded)
    assert by_rows, f"neither whole nor in rows: {value.placements}"
    mesh = value.device_mesh.mesh
    groups = mesh.movedim(sharded[0], -1).reshape(-1, mesh.shape[sharded[0]]) if sharded else mesh.reshape(-1, 1)
    found: list[list[int]] = groups.tolist()
    return found


def _rows(shape: tuple[int, ...], ranks: list[int]) -> tuple[Part, ...]:
    if len(ranks) == 1:
        return (Part(ranks[0], 0, shape),)
    size = -(-shape[0] // len(ranks))
    return tuple(
        Part(rank, first, (min(size, shape[0] - first), *shape[1:]))
        for rank, first in zip(ranks, range(0, shape[0], size), strict=False)
    )
