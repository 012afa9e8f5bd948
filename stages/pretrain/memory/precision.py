"""In which types the training computes.

Weights, moments, reductions of gradients and the loss are float32 in every precision: an update of less than half a
step of bfloat16 would be lost in a bfloat16 weight. Matrix products read copies in the narrow type. Where FSDP2 shards,
its policy makes these copies as it gathers; everywhere else autocast does.
"""

import importlib.util
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data.errors import InputError
from stages.pretrain.config import PretrainConfig

if TYPE_CHECKING:
    import torch
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

HOPPER = (9, 0)  # compute capability
FP8_MULTIPLE = 16  # both sides of a matrix that an fp8 product reads


@dataclass(frozen=True)
class Precision:
    """How a model computes. `casts`: whether autocast has to do it, since no FSDP2 policy does."""

    name: str
    device_type: str
    casts: bool

    @property
    def dtype(self) -> "torch.dtype":
        """Of the matrix products' inputs, of queries and keys, and so of masks that are added to attention scores."""
        return compute_dtype(self.name)

    @property
    def needs_scale(self) -> bool:
        """Whether small gradients would underflow without a loss scale."""
        return self.name == "fp16"

    def autocast(self) -> AbstractContextManager[None]:
        """For the forward pass of one micro-batch, loss included; the backward pass stays outside."""
        import torch

        if not self.casts or self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device_type, dtype=self.dtype)


def precision_of(config: PretrainConfig, device: "torch.device", *, fully_sharded: bool) -> Precision:
    """fully_sharded: whether FSDP2 does the sharding, with the policy of `mixed_precision`. Raises InputError for a
    precision that this device or installation does not have."""
    require_precision(config, device)
    return Precision(config.precision, device.type, casts=not fully_sharded)


def compute_dtype(name: str) -> "torch.dtype":
    """Of matrix products in the precision `name`; those in fp8 convert their inputs themselves."""
    import torch

    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}[name]


def mixed_precision(config: PretrainConfig) -> "MixedPrecisionPolicy":
    """FSDP2's policy: weights are gathered in the narrow type, gradients are reduced in float32."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    dtype = compute_dtype(config.precision)
    if dtype == torch.float32:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)


def offloading(config: PretrainConfig) -> "OffloadPolicy | CPUOffloadPolicy":
    """FSDP2's policy of where shards of weights, gradients and optimizer states lie."""
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy

    return CPUOffloadPolicy() if config.offload_optimizer else OffloadPolicy()


def require_precision(config: PretrainConfig, device: "torch.device") -> None:
    """Raises InputError for what the device cannot do, or for a package that is missing."""
    if config.offload_optimizer and device.type == "cpu":
        raise InputError("pretrain.offload_optimizer has no effect on a CPU, whose memory it offloads to: leave it out")
    if config.precision != "fp8":
        return
    import torch

    if device.type != "cuda" or torch.cuda.get_device_capability(device) < HOPPER:
        raise InputError('pretrain.precision = "fp8" needs a Hopper GPU or a later one; use "bf16" here')
    if importlib.util.find_spec("torchao") is None:
        raise InputError('pretrain.precision = "fp8" needs the package torchao: pip install torchao, or use "bf16"')


def convert(config: PretrainConfig, model: "torch.nn.Module") -> None:
    """With fp8: let the decoder layers' matrix products be computed in float8, with one scale for each tensor, made
    anew each time. In place, before sharding, on meta as well; names and weights stay as they are."""
    if config.precision != "fp8":
        return
    import torch
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    def wanted(module: torch.nn.Module, name: str) -> bool:
        if not isinstance(module, torch.nn.Linear) or ".layers." not in name:
            return False
        return all(side % FP8_MULTIPLE == 0 for side in module.weight.shape)

    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name("tensorwise"), module_filter_fn=wanted)
