"""The model: a decoder of transformers, of any family that `shape` names, without its weights."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.pretrain.model.shape import MULTIPLIERS, OF_FAMILIES, Family, ModelConfig

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

CLASSES: dict[Family, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "granite": "GraniteForCausalLM",
}


def huggingface_config(model: ModelConfig, *, vocabulary_size: int, eos_id: int) -> "PreTrainedConfig":
    """The configuration that transformers knows the model by. There is no beginning-of-sequence token: documents end
    with EOS.

    With maximal update parametrisation the scores of attention are divided by the width of a head, not by its root, and
    the logits by the ratio of the widths (Yang et al., 2022, "Tensor Programs V", definition 4.1 and table 8).
    """
    shape = model.resolved()
    rope = {name: list(value) if isinstance(value, tuple) else value for name, value in shape.rope_scaling.items()}
    values: dict[str, Any] = {
        "vocab_size": vocabulary_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "max_position_embeddings": shape.context_tokens,
        "rms_norm_eps": shape.norm_epsilon,
        "initializer_range": shape.initializer_std,
        "tie_word_embeddings": shape.tie_embeddings,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta, **rope},
        "bos_token_id": None,
        "eos_token_id": eos_id,
        "pad_token_id": None,
        "use_cache": True,
        "architectures": [CLASSES[shape.family]],
        "dtype": "float32",
    }
    of_family = {
        "head_dim": shape.head_size,
        "attention_bias": shape.attention_bias,
        "mlp_bias": shape.mlp_bias,
        **{name: getattr(shape, name) for name in MULTIPLIERS},
        "logits_scaling": shape.logits_scaling * shape.width_ratio,
        "attention_multiplier": shape.attention_multiplier
        or (1 / shape.head_size if shape.mup_base_hidden_size else shape.head_size**-0.5),
    }
    values |= {name: value for name, value in of_family.items() if shape.family in OF_FAMILIES[name]}
    if shape.family in ("mistral", "qwen2", "qwen3"):
        values["sliding_window"] = None
    return config_of({"model_type": shape.family, **values})


def config_of(values: Mapping[str, Any]) -> "PreTrainedConfig":
    """The configuration that the content of a config.json says."""
    from transformers import AutoConfig

    return AutoConfig.for_model(**values)


def config_values(config: "PreTrainedConfig") -> dict[str, Any]:
    """The content of config.json: the same for the same model, so without the version of the library that wrote it."""
    values = config.to_diff_dict()
    values.pop("transformers_version", None)
    return values


def build(
    config: "PreTrainedConfig",
    implementation: str = "sdpa",
    *,
    device: "torch.device | str" = "cpu",
    trains: bool = False,
) -> "PreTrainedModel":
    """The model in float32. On "meta" it has no memory; elsewhere its weights are NaN: still to be set.

    implementation: of its attention, by the name that transformers knows. trains: whether its forward pass is to take
    `targets` (see `loss.trained`); without, the model is transformers' own in every respect.
    """
    import torch
    import transformers

    from stages.pretrain.model.initialise import allocate
    from stages.pretrain.model.loss import trained

    kind = getattr(transformers, CLASSES[config.model_type])
    with torch.device("meta"):
        made = trained(kind) if trains else kind
        model: PreTrainedModel = made._from_config(config, attn_implementation=implementation, dtype=torch.float32)
    assert model.config._attn_implementation == implementation, model.config._attn_implementation
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    if torch.device(device).type != "meta":
        allocate(model, device)
    return model


def decoder_layers(model: "torch.nn.Module") -> "torch.nn.ModuleList":
    """The decoder layers of a model of any family, from the first to the last."""
    return model.get_submodule("model.layers")  # type: ignore[return-value]


def trimmed(model: "PreTrainedModel", vocabulary_size: int) -> "PreTrainedModel":
    """The same model without the rows that only pad its vocabulary."""
    import torch

    if model.config.vocab_size == vocabulary_size:
        return model
    small = build(config_of({**config_values(model.config), "vocab_size": vocabulary_size}))
    with torch.no_grad():
        for (name, parameter), (_, padded) in zip(small.named_parameters(), model.named_parameters(), strict=True):
            assert parameter.shape[1:] == padded.shape[1:], name
            parameter.copy_(padded[: len(parameter)])
    return small.train(model.training)
