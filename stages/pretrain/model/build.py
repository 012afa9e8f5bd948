"""The model: a transformers LlamaForCausalLM with weights that follow from the seed alone.

Each tensor is drawn from a generator of its own, seeded with (seed, name): the values depend neither on the world size,
nor on the order in which tensors are made, nor on what else has drawn random numbers. Output projections of the
residual blocks are scaled by 1/sqrt(2 num_layers) (Radford et al., 2019, "Language Models are Unsupervised Multitask
Learners", section 2.3).
"""

import hashlib
import math
from typing import TYPE_CHECKING, Any

from stages.pretrain.config import ModelConfig

if TYPE_CHECKING:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

RESIDUAL_OUTPUTS = ("o_proj.weight", "down_proj.weight")


def huggingface_config(model: ModelConfig, *, vocabulary_size: int, eos_id: int) -> "LlamaConfig":
    """The configuration that transformers knows the model by. There is no beginning-of-sequence token: documents end
    with EOS."""
    from transformers import LlamaConfig

    shape = model.resolved()
    return LlamaConfig(
        vocab_size=vocabulary_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        max_position_embeddings=shape.context_tokens,
        rms_norm_eps=shape.norm_epsilon,
        initializer_range=shape.initializer_std,
        tie_word_embeddings=shape.tie_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        bos_token_id=None,
        eos_token_id=eos_id,
        pad_token_id=None,
        use_cache=True,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    )


def config_values(config: "LlamaConfig") -> dict[str, Any]:
    """The content of config.json: the same for the same model, so without the version of the library that wrote it."""
    values = config.to_diff_dict()
    values.pop("transformers_version", None)
    return values


def build(config: "LlamaConfig", implementation: str = "sdpa") -> "LlamaForCausalLM":
    """The model in float32 on the CPU; implementation: of its attention, by the name that transformers knows. Its
    weights are still to be set."""
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM._from_config(config, attn_implementation=implementation, dtype=torch.float32)
    assert model.config._attn_implementation == implementation, model.config._attn_implementation
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    return model


def trimmed(model: "LlamaForCausalLM", vocabulary_size: int) -> "LlamaForCausalLM":
    """The same model without the rows that only pad its vocabulary."""
    import torch
    from transformers import LlamaConfig

    if model.config.vocab_size == vocabulary_size:
        return model
    config = LlamaConfig(**{**config_values(model.config), "vocab_size": vocabulary_size})
    small = build(config)
    with torch.no_grad():
        for (name, parameter), (_, padded) in zip(small.named_parameters(), model.named_parameters(), strict=True):
            assert parameter.shape[1:] == padded.shape[1:], name
            parameter.copy_(padded[: len(parameter)])
    return small.train(model.training)


def initialise(model: "torch.nn.Module", *, seed: int, std: float, num_layers: int) -> None:
    """Set every weight in place: norms to 1, matrices normal with mean 0."""
    import torch

    generator = torch.Generator()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
                continue
            generator.manual_seed(seed_of(seed, name))
            scale = std / math.sqrt(2 * num_layers) if name.endswith(RESIDUAL_OUTPUTS) else std
            parameter.normal_(0.0, scale, generator=generator)


def seed_of(seed: int, name: str) -> int:
    """A 63-bit seed that is a function of (seed, name)."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "little") >> 1
