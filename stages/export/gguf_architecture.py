"""What llama.cpp knows a family of models by: the name of its architecture, how it turns positions, and the keys of a
GGUF header that say what it computes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """name: in gguf.MODEL_ARCH. interleaved: llama.cpp turns neighbouring values of a head as a pair, where
    transformers turns one of its first half with one of its second, so rows of queries and keys change places.
    optional: tensors that the family may have beside those that it always has, and that llama.cpp looks for.
    multipliers: the header has those of Granite.
    """

    name: str
    interleaved: bool
    optional: tuple[str, ...] = ()
    multipliers: bool = False


ROPE_FACTORS = "rope_freqs.weight"
BIASES = ("attention_bias", "mlp_bias")
# transformers' model_type: what the family is to llama.cpp.
ARCHITECTURES = {
    "llama": Architecture(name="LLAMA", interleaved=True, optional=(*BIASES, ROPE_FACTORS)),
    "mistral": Architecture(name="LLAMA", interleaved=True, optional=(ROPE_FACTORS,)),
    "qwen2": Architecture(name="QWEN2", interleaved=False),
    "qwen3": Architecture(name="QWEN3", interleaved=False),
    "granite": Architecture(name="GRANITE", interleaved=True, optional=(*BIASES, ROPE_FACTORS), multipliers=True),
}
# Rotary scalings that a header describes completely; of yarn, with the constants of its authors only.
ROPE_TYPES = ("default", "linear", "yarn", "llama3")
YARN_KEYS = {"rope_type", "rope_theta", "factor", "original_max_position_embeddings"}


def head_size(config: Any) -> int:
    """Width of a head of a Hugging Face config."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def unfit(config: Any) -> list[str]:
    """What llama.cpp would not compute of a model of this Hugging Face config, one phrase each."""
    if config.model_type not in ARCHITECTURES:
        return [f"its architecture is {config.model_type}; {', '.join(ARCHITECTURES)} can be written"]
    reasons = []
    optional = ARCHITECTURES[config.model_type].optional
    rope = config.rope_parameters
    kind = rope["rope_type"]
    if kind not in ROPE_TYPES or (kind == "llama3" and ROPE_FACTORS not in optional):
        reasons.append(f"its rotary embedding is scaled by {kind}, which cannot be written for {config.model_type}")
    elif kind == "yarn" and (own := sorted(rope.keys() - YARN_KEYS)):
        reasons.append(f"its rotary embedding is scaled by yarn with constants of its own ({', '.join(own)})")
    for name in BIASES:
        if getattr(config, name, False) and name not in optional:
            reasons.append(f"it has an {name}, which llama.cpp does not look for in a {config.model_type}")
    if getattr(config, "sliding_window", None):
        reasons.append(f"its attention has a window of {config.sliding_window} tokens")
    return reasons


def write_architecture(writer: Any, config: Any) -> None:
    """The keys of the header that describe the model of a Hugging Face config."""
    import gguf

    size, rope = head_size(config), config.rope_parameters
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if ARCHITECTURES[config.model_type].multipliers:
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def rope_factors(config: Any) -> "np.ndarray | None":
    """float32[head size / 2]: by what llama.cpp is to divide the frequency of each pair, for a scaling that has no keys
    in the header; None for the others.
    """
    if config.rope_parameters["rope_type"] != "llama3":
        return None
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled, attention_factor = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    assert attention_factor == 1.0, attention_factor
    size = head_size(config)
    plain = config.rope_parameters["rope_theta"] ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
    return (plain / scaled.double()).float().numpy()
