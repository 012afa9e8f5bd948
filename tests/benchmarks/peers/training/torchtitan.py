"""torchtitan's trainer on CPUs, sharded by FSDP2 over gloo, in float32. Its debug model is the benchmark's.

    .bench/torchtitan/bin/python -m torch.distributed.run ... -m tests.benchmarks.peers.training.torchtitan TEXT FOLDER

As shipped it neither starts nor trains without a GPU. What is put in here: the parts of a GPU's module that torch.cpu
lacks, attention by scaled_dot_product_attention (its own has no backward pass on a CPU), a barrier and timeouts without
a device, and sums instead of weighted sums, which gloo does not have.
"""

import os
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.benchmarks.peers.training import steps


def on_cpus() -> None:
    """Before torchtitan is imported."""
    nothing = {"reset_peak_memory_stats": None, "empty_cache": None, "set_device": None, "synchronize": None}
    facts = {
        "current_device": 0,
        "device_count": 8,
        "max_memory_allocated": 0,
        "max_memory_reserved": 0,
        "get_device_name": "cpu",
        "get_device_properties": SimpleNamespace(name="cpu", total_memory=16 << 30),
        "memory_stats": defaultdict(int),
    }
    known = {name: getattr(torch.cpu, name) for name in dir(torch.cpu) if not name.startswith("__")}
    answers = {name: lambda *_, value=value: value for name, value in (nothing | facts).items()}
    module = SimpleNamespace(**{**known, **answers})
    torch._utils._get_available_device_type = lambda: "cpu"
    torch._utils._get_device_module = lambda *_: module

    barrier, divide = dist.barrier, FSDPModule.set_gradient_divide_factor

    def plain_barrier(*arguments: Any, device_ids: Any = None, **settings: Any) -> Any:
        return barrier(*arguments, **settings)

    def summing(self: Any, factor: float) -> None:
        divide(self, factor)
        self.set_force_sum_reduction_for_comms(True)

    dist.barrier = plain_barrier
    dist.set_timeout = lambda *_, **__: None
    FSDPModule.set_gradient_divide_factor = summing


def settings(text: Path) -> Any:
    import torchtitan.models.llama3 as llama3
    from torchtitan.models.common.attention import ScaledDotProductAttention

    class Attention(ScaledDotProductAttention):
        @dataclass(kw_only=True, slots=True)
        class Config(ScaledDotProductAttention.Config):
            pass

        def forward(self, q_BLNH: Any, k_BLNH: Any, v_BLNH: Any, *, scale: Any = None, **others: Any) -> Any:
            query, key, value = (tensor.transpose(1, 2) for tensor in (q_BLNH, k_BLNH, v_BLNH))
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale).transpose(1, 2)

    llama3.get_attention_config = lambda backend: Attention.Config()
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    config = llama3_debugmodel()
    config.model_spec = llama3.model_registry("debugmodel", attn_backend="sdpa")
    config.hf_assets_path = str(text / "tokenizer")
    config.dataloader.dataset_path = str(text / "lines")
    config.training.seq_len = steps.TOKENS
    config.training.local_batch_size = steps.ROWS // int(os.environ["WORLD_SIZE"])
    config.training.steps = steps.STEPS
    config.training.max_norm = steps.CLIP_NORM
    config.training.mixed_precision_param = "float32"
    config.parallelism.spmd_backend = "partial_dtensor"
    config.checkpoint.enable = config.validator.enable = False
    config.activation_checkpoint = None
    return config


def count_steps(folder: Path) -> None:
    """Its optimizer holds optimizers, and torch takes the step of each for one; the outer one ends last."""
    from torchtitan.components.optimizer import OptimizersContainer

    times = steps.Steps(folder)

    def ended(optimizer: Any, *_: Any) -> None:
        if isinstance(optimizer, OptimizersContainer):
            times.ended()

    register_optimizer_step_post_hook(ended)


def main(text: Path, folder: Path) -> None:
    on_cpus()
    config = settings(text)
    config.dump_folder = str(folder)
    count_steps(folder)
    trainer = config.build()
    try:
        trainer.train()
    finally:
        trainer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
