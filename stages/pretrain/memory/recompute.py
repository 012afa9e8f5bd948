"""What of a decoder layer is computed again in the backward pass instead of being kept.

A layer's `forward` alone is replaced: names, types and hooks stay as they are, and hooks (FSDP's and the monitor's) run
once, around it. What compiles a layer is to take its `forward` after that, so that the compiler sees what may be
recomputed. Nothing of a layer is random, so that both passes compute the same bits (without compile, as tests assert).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from stages.pretrain.config import PretrainConfig
from stages.pretrain.model.build import decoder_layers

if TYPE_CHECKING:
    import torch

# Operators by the names that torch's dispatcher knows: those of each back end of attention (bmm is eager attention's,
# the last two are those of torch's and of flash-attn's kernel for documents), and products with weights.
OPERATORS = {
    "attention": frozenset(
        {
            "aten::_scaled_dot_product_flash_attention",
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            "aten::_scaled_dot_product_efficient_attention",
            "aten::_scaled_dot_product_cudnn_attention",
            "aten::_scaled_dot_product_fused_attention_overrideable",
            "aten::_flash_attention_forward",
            "aten::_efficient_attention_forward",
            "aten::bmm",
            "flex_attention",
            "longhaul::attend_documents",
            "torch_attn::_varlen_attn",
            "flash_attn::_flash_attn_varlen_forward",
        }
    ),
    "matmul": frozenset({"aten::mm", "aten::addmm", "aten::_scaled_mm"}),
}


def apply(config: PretrainConfig, model: "torch.nn.Module") -> None:
    """Make the decoder layers of `model` recompute what `config` says. In place; before compiling and sharding, on meta
    as well."""
    layers = decoder_layers(model)
    mode = config.recompute
    if mode == "budget" and config.compile:
        # Read when a layer is compiled; the cheapest operators to recompute are found within each layer.
        import torch._functorch.config

        torch._functorch.config.activation_memory_budget = config.recompute_kept_share
        return
    if mode == "none":
        return
    contexts = _keeping(config.recompute_keep) if mode == "operators" else None
    for layer in layers[: num_recomputed(config, len(layers))]:
        layer.forward = _recomputing(layer.forward, contexts)


def num_recomputed(config: PretrainConfig, num_layers: int) -> int:
    """Layers, the first ones, whose activations are not kept as they are. Where some are kept these are the last: the
    backward pass has freed them before it recomputes any other."""
    if config.recompute == "none" or (config.recompute == "budget" and config.compile):
        return 0
    if config.recompute == "budget":
        return num_layers - int(config.recompute_kept_share * num_layers)
    return num_layers


def _recomputing(forward: Callable[..., Any], contexts: Callable[[], Any] | None) -> Callable[..., Any]:
    """`forward` that keeps its arguments alone, or what `contexts` keep beside them, where gradients are wanted."""
    import torch
    from torch.utils.checkpoint import checkpoint

    # Without dropout there is no state of a random generator to bring back.
    settings: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if contexts is not None:
        settings["context_fn"] = contexts

    def recomputing(*arguments: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*arguments, **named)
        return checkpoint(forward, *arguments, **settings, **named)

    return recomputing


def _keeping(kinds: tuple[str, ...]) -> Callable[[], Any]:
    """Contexts of a forward pass that keeps the results of these kinds of operators, and of the one that uses them."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    kept = frozenset().union(*(OPERATORS[kind] for kind in kinds))

    def policy(context: Any, operator: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if operator.name() in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return partial(create_selective_checkpoint_contexts, policy)
