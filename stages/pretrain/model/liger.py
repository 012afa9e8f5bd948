"""Liger's kernels for norms, rotary embedding and feed-forward (Hsu et al., 2024, "Liger Kernel: Efficient Triton
Kernels for LLM Training"), where the package liger-kernel is installed. They are Triton's, so on GPUs only; and where
layers are compiled they are left out, as the compiler fuses the same operations itself. The loss is ours in any case.
"""

import importlib.util
from typing import TYPE_CHECKING

from stages.pretrain.config import PretrainConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def apply(config: PretrainConfig, model: "PreTrainedModel") -> bool:
    """Let `model`, on meta as well, compute with Liger's kernels if `config` and this process allow for it. Whether it
    does now; a kind of model that Liger has no kernels for stays as it is."""
    import torch

    is_on_gpu = config.device != "cpu" and torch.cuda.is_available()
    if config.liger == "off" or config.compile or not is_on_gpu or not importlib.util.find_spec("liger_kernel"):
        return False
    from liger_kernel import transformers as liger

    patch = getattr(liger, f"apply_liger_kernel_to_{model.config.model_type}", None)
    if patch is None:
        return False
    patch(rope=True, rms_norm=True, swiglu=True, cross_entropy=False, fused_linear_cross_entropy=False, model=model)
    return True
