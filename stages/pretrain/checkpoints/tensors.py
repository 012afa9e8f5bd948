"""The logical tensors of a training state, by name, and their digest.

    model.<parameter>            float32, as transformers names it; tied weights once
    optimizer.<...>, ema.<...>   see stages.pretrain.optimise.optimizer

A tensor is either on every rank (whole, or as a DTensor in shards), or held by one rank alone (`Held`). The digest is
over names, dtypes, shapes and values. It knows nothing of files, of ranks or of who holds what.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


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


def state_digest(state: "State", step_state: Mapping[str, Any], *, reads: bool = True) -> str:
    """sha256, in hex, over all tensors in the order of their names and over `step_state` (JSON).

    Tensors that are not whole everywhere are brought together one at a time, which every rank must take part in; ranks
    for which `reads` is false return "". If there are several, the one that reads is rank 0.
    """
    import torch

    digest = hashlib.sha256()
    for name in sorted(state):
        whole = _whole(state[name], reads=reads)
        if whole is None or not reads:
            continue
        digest.update(f"{name} {whole.dtype} {list(whole.shape)}\n".encode())
        digest.update(whole.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    digest.update(json.dumps(step_state, sort_keys=True, allow_nan=False).encode())
    return digest.hexdigest() if reads else ""


def _whole(value: "torch.Tensor | Held", *, reads: bool) -> "torch.Tensor | None":
    """The whole tensor, where it is to be read at least."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    if isinstance(value, DTensor):
        # Shards that are offloaded to the host are gathered over the links of the device.
        near: DTensor = value.to(value.device_mesh.device_type)  # type: ignore[assignment]
        return near.full_tensor()
    if not isinstance(value, Held):
        return value
    if value.tensor is not None:
        if not reads:
            dist.send(value.tensor.contiguous(), dst=0)
        return value.tensor
    if not reads:
        return None
    received = torch.empty(value.shape, dtype=value.dtype, device=value.device)
    dist.recv(received, src=value.holder)
    return received
