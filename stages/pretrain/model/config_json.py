"""The shape that a Hugging Face config.json describes.

A key either enters the shape, or has the one value that is supported, or says nothing of what a model computes; any
other is refused by its name, so that a model is what its config.json says or is not built at all. Imports neither torch
nor transformers.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from data.errors import InputError
from stages.pretrain.model.shape import FAMILIES, MULTIPLIERS, OF_FAMILIES, ModelConfig

# Key: the only value that is supported.
ONLY: dict[str, Any] = {
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "pretraining_tp": 1,
    "partial_rotary_factor": 1.0,
    "use_sliding_window": False,
    "rope_interleaved": False,
}
SHAPE_KEYS = {
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "attention_bias",
    "mlp_bias",
    "tie_word_embeddings",
    "rope_theta",
    "rope_parameters",
    "rope_scaling",
    "rms_norm_eps",
    "max_position_embeddings",
    "initializer_range",
    "sliding_window",
    "layer_types",
    *MULTIPLIERS,
}
# Field of the shape: its key, where the two differ.
KEYS = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "tie_embeddings": "tie_word_embeddings",
    "norm_epsilon": "rms_norm_eps",
    "context_tokens": "max_position_embeddings",
    "initializer_std": "initializer_range",
}
# Of files, tokens and generation; the vocabulary is the tokenizer's.
OTHER_KEYS = {
    "architectures",
    "vocab_size",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "unk_token_id",
    "use_cache",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
    "max_window_layers",
    "is_llama_config",
    "transformers.js_config",
}
# Where transformers has a default of its own for a key that a file lacks.
HEAD_DIM = {"qwen3": 128}
CONTEXT_TOKENS = {"llama": 2048, "granite": 2048, "qwen2": 32_768, "qwen3": 32_768, "mistral": 131_072}


def from_huggingface(path: Path) -> ModelConfig:
    """The shape in a Hugging Face config.json. Raises InputError, naming the key, for what would not be honoured."""
    values = _read(path)
    family = values.get("model_type")
    if family not in FAMILIES:
        raise _refusal(path, f"model_type = {family!r}; supported are {', '.join(FAMILIES)}")
    for name, value in values.items():
        _require_honoured(path, family, name, value)
    if family == "mistral" and "sliding_window" not in values:
        raise _refusal(path, "no sliding_window, which stands for 4096; only null is supported")
    rope = _rope(path, values)
    try:
        heads = values["num_attention_heads"]
        kv_heads = values.get("num_key_value_heads", None if family in ("llama", "granite") else 0)
        if kv_heads == 0:
            raise KeyError("num_key_value_heads")
        head_dim = values.get("head_dim", HEAD_DIM.get(family)) or 0
        if "head_dim" in values and family not in OF_FAMILIES["head_dim"] and head_dim * heads == values["hidden_size"]:
            head_dim = 0  # says what follows anyway
        return ModelConfig(
            family=family,
            hidden_size=values["hidden_size"],
            num_layers=values["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=kv_heads or heads,
            head_dim=head_dim,
            intermediate_size=values["intermediate_size"],
            attention_bias=values.get("attention_bias", False),
            mlp_bias=values.get("mlp_bias", False),
            tie_embeddings=values.get("tie_word_embeddings", False),
            rope_theta=rope.pop("rope_theta", values.get("rope_theta", 10_000.0)),
            rope_scaling=rope,
            norm_epsilon=values.get("rms_norm_eps", 1e-6),
            context_tokens=values.get("max_position_embeddings", CONTEXT_TOKENS[family]),
            initializer_std=values.get("initializer_range", 0.02),
            **{
                name: values.get(name, 1.0) if family == "granite" else ModelConfig.model_fields[name].default
                for name in MULTIPLIERS
            },
        )
    except KeyError as error:
        raise InputError(f"model.huggingface_config: {path} has no {error}") from None
    except ValidationError as error:
        raise InputError(f"model.huggingface_config: {path}: {'; '.join(map(_fault, error.errors()))}") from None


def _fault(entry: ErrorDetails) -> str:
    """What is wrong with a value, by its key in the file."""
    message = entry["msg"].removeprefix("Value error, ")
    if not entry["loc"]:
        return message
    name, *within = map(str, entry["loc"])
    return f"{'.'.join([KEYS.get(name, name), *within])} = {entry['input']!r}: {message}"


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"model.huggingface_config: there is no file {path}") from None
    except ValueError as error:
        raise InputError(f"model.huggingface_config: {path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"model.huggingface_config: {path} is not a JSON object")
    return values


def _require_honoured(path: Path, family: str, name: str, value: Any) -> None:
    """Raises InputError for a key whose value means something that is not built."""
    if name in ONLY:
        if value is not None and value != ONLY[name]:
            raise _refusal(path, f"{name} = {value!r}; only {ONLY[name]!r} is supported")
    elif name == "sliding_window":
        # The qwen families ask use_sliding_window whether there is one.
        if family == "mistral" and value is not None:
            raise _refusal(path, f"sliding_window = {value!r}; only null is supported")
    elif name == "layer_types":
        if set(value or ()) - {"full_attention"}:
            raise _refusal(path, f"layer_types = {value!r}; only full_attention is supported")
    elif name in MULTIPLIERS and family != "granite":
        raise _refusal(path, f"{name} = {value!r}; only model_type granite has it")
    elif name not in SHAPE_KEYS | OTHER_KEYS and value not in (None, False, 0, "", [], {}):
        raise _refusal(path, f"{name} = {value!r}, which would not be honoured: take it out if it may be ignored")


def _rope(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The rotary settings with rope_type, of which "default" is left out; rope_theta may be among them."""
    found = values.get("rope_scaling") or values.get("rope_parameters") or {}
    if not isinstance(found, dict):
        raise InputError(f"model.huggingface_config: {path}: the rotary settings {found!r} are not a JSON object")
    rope = {name: value for name, value in found.items() if value is not None}
    if rope.pop("partial_rotary_factor", 1.0) != 1.0:
        raise _refusal(path, "partial_rotary_factor; only 1.0 is supported")
    old_name = rope.pop("type", "default")
    kind = rope.pop("rope_type", old_name)
    return rope if kind == "default" else {"rope_type": kind, **rope}


def _refusal(path: Path, what: str) -> InputError:
    return InputError(f"model.huggingface_config: {path} has {what}")
