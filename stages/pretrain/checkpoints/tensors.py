"""The logical tensors of a training state, by name, and their digest.

    model.<parameter>            float32, as transformers names it; tied weights once
    optimizer.<parameter>.<slot> step, exp_avg, exp_avg_sq

The digest is over names, dtypes, shapes and values. It knows nothing of files, of ranks or of how a tensor is sharded.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.pretrain.optimise.optimizer import SLOTS

if TYPE_CHECKING:
    import torch


def model_tensors(model: "torch.nn.Module") -> dict[str, "torch.Tensor"]:
    """Parameters and persistent buffers of `model`, sharing its memory; DTensors where it is sharded."""
    found = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                found[f"model.{prefix}.{name}" if prefix else f"model.{name}"] = buffer
    return found


def optimizer_tensors(model: "torch.nn.Module", optimizer: "torch.optim.Optimizer") -> dict[str, "torch.Tensor"]:
    """The optimizer's state, sharing its memory, under the names of the model's parameters."""
    return {
        f"optimizer.{name}.{slot}": optimizer.state[parameter][slot]
        for name, parameter in model.named_parameters()
        for slot in SLOTS
    }


def poison(tensors: Mapping[str, "torch.Tensor"]) -> None:
    """Fill with NaN what is about to be loaded, so that a value which the load does not set cannot pass for a good
    one."""
    import torch

    with torch.no_grad():
        for tensor in tensors.values():
            tensor.fill_(float("nan"))


def state_digest(tensors: Mapping[str, "torch.Tensor"], step_state: Mapping[str, Any], *, reads: bool = True) -> str:
    """sha256, in hex, over all tensors in the order of their names and over `step_state` (JSON).

    Sharded tensors are gathered one at a time, which every rank must take part in; ranks for which `reads` is false
    return "".
    """
    import torch
    from torch.distributed.tensor import DTensor

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if not reads:
            continue
        digest.update(f"{name} {whole.dtype} {list(whole.shape)}\n".encode())
        digest.update(whole.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    digest.update(json.dumps(step_state, sort_keys=True, allow_nan=False).encode())
    return digest.hexdigest() if reads else ""
