"""How a model is spread over processes, and what one process knows of the others.

One process trains the plain model. More than one shard parameters, gradients and optimizer states by FSDP2, on GPUs and
on CPUs (gloo) alike; Accelerate is the engine of both. Weights, moments, reductions and the loss are float32; with bf16
the matrix products are not.
"""

import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from stages.pretrain.config import PretrainConfig

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from transformers import LlamaForCausalLM

DECODER_LAYER = "LlamaDecoderLayer"


@dataclass(frozen=True)
class Ranks:
    """This process among all: its `rank`, how many there are, and the device that it computes on."""

    rank: int
    size: int
    device: "torch.device"

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            import torch.distributed as dist

            dist.barrier()

    def leave(self) -> None:
        """Part from the other ranks at the end."""
        if self.size > 1:
            import torch.distributed as dist

            dist.destroy_process_group()

    def sum(self, values: Sequence[float]) -> "torch.Tensor":
        """float64[n] on the device: the sum of `values` over all ranks, with the same bits on each of them."""
        import torch

        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(total)
        return total

    def peak_memory_bytes(self) -> int:
        """Most memory that the processes have held, summed over all ranks: of the GPU if they train on one, else of
        the host."""
        if self.device.type == "cuda":
            import torch

            return int(self.sum([torch.cuda.max_memory_allocated()]).item())
        unit = 1 if sys.platform == "darwin" else 1024
        return int(self.sum([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit]).item())


def start(config: PretrainConfig) -> "tuple[Accelerator, Ranks]":
    """Join the other processes (as torchrun's variables say) and set the process up for reproducible arithmetic."""
    import torch
    import torch.utils.deterministic

    torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    on_cpu = config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available())
    accelerator = _accelerator(config, on_cpu=on_cpu)
    ranks = Ranks(accelerator.process_index, accelerator.num_processes, accelerator.device)
    # Accelerate falls back to single processes that know nothing of each other without a word.
    assert ranks.size == config.num_processes, f"{config.num_processes} processes were asked for, {ranks.size} found"
    return accelerator, ranks


def _accelerator(config: PretrainConfig, *, on_cpu: bool) -> "Accelerator":
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, InitProcessGroupKwargs

    if config.num_processes == 1:
        return Accelerator(cpu=on_cpu, mixed_precision="bf16" if config.precision == "bf16" else "no")
    # Accelerate's own "bf16" would reduce gradients and return the loss in bf16, so the policy is ours.
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=True,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=[DECODER_LAYER],
        state_dict_type="SHARDED_STATE_DICT",
        cpu_ram_efficient_loading=False,
        mixed_precision_policy=_policy(config),
    )
    timeout = InitProcessGroupKwargs(timeout=timedelta(seconds=config.collective_timeout_seconds))
    if not on_cpu:
        return Accelerator(fsdp_plugin=plugin, mixed_precision="no", kwargs_handlers=[timeout])
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin, mixed_precision="no", kwargs_handlers=[timeout])
    # Accelerate 1.15 has CPU in none of its lists of devices that can shard and would drop the plugin for DDP. Nothing
    # behind this state depends on the device.
    assert accelerator.distributed_type == DistributedType.MULTI_CPU, accelerator.distributed_type
    for state in (PartialState, AcceleratorState):
        state._shared_state["distributed_type"] = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    return accelerator


def _policy(config: PretrainConfig) -> "MixedPrecisionPolicy":
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    if config.precision == "bf16":
        return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return MixedPrecisionPolicy()


def spread(
    accelerator: "Accelerator", model: "LlamaForCausalLM", optimizer: "torch.optim.AdamW", *, compile_layers: bool
) -> "tuple[torch.nn.Module, torch.optim.AdamW]":
    """Place model and optimizer on the device and shard them if there are several processes."""
    from torch.distributed.tensor import DTensor

    if compile_layers:
        for layer in model.model.layers:
            layer.compile()
    prepared, wrapped = accelerator.prepare(model, optimizer)
    if accelerator.num_processes > 1:
        plain = [name for name, parameter in prepared.named_parameters() if not isinstance(parameter, DTensor)]
        assert not plain, f"not sharded: {plain}"
    # The wrapper's step() depends on accelerate's own view of accumulation; the loop has its own.
    optimizer = wrapped.optimizer
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert held == {id(parameter) for parameter in prepared.parameters()}, (
        "the optimizer holds other parameters than the model"
    )
    return prepared, optimizer


def reduce_gradients(model: "torch.nn.Module", wanted: bool) -> None:
    """Whether the next backward pass reduces gradients over the ranks: only that of a step's last micro-batch need
    do so."""
    from torch.distributed.fsdp import FSDPModule

    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(wanted)


def reshard(model: "torch.nn.Module") -> None:
    """Give up what a forward pass without a backward pass has gathered, so that the model's parameters are its
    shards again."""
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
