"""What a recipe says about the shape of the model (`[model]`), or the Hugging Face config.json that says it.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from data.errors import InputError
from stages.config import StageConfig, runtime
from stages.files import sha256_file


class ModelConfig(StageConfig):
    """The shape of a Llama decoder. The number of vocabulary rows is the tokenizer's and is not set here."""

    huggingface_config: str = runtime(
        "",
        description="Path of a Hugging Face config.json (type llama) that gives the shape instead of the fields below",
    )
    hidden_size: int = Field(128, ge=8, description="Width of the residual stream")
    num_layers: int = Field(4, ge=1, description="Decoder layers")
    num_heads: int = Field(2, ge=1, description="Query heads")
    num_kv_heads: int = Field(
        2, ge=1, description="Key and value heads; fewer than num_heads is grouped-query attention"
    )
    intermediate_size: int = Field(320, ge=8, description="Width of the gated feed-forward block")
    tie_embeddings: bool = Field(True, description="Input embedding and output projection are one matrix")
    rope_theta: float = Field(10_000.0, gt=0, description="Base of the rotary position frequencies")
    norm_epsilon: float = Field(1e-5, gt=0, description="Epsilon of RMSNorm")
    context_tokens: int = Field(256, ge=2, description="Longest sequence that the model is made for")
    initializer_std: float = Field(
        0.02,
        gt=0,
        description="Standard deviation of the initial weights; output projections: divided by sqrt(2 num_layers)",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"model.hidden_size = {self.hidden_size} is not divisible by model.num_heads = {self.num_heads}"
            )
        if self.head_size % 2:
            raise ValueError(
                f"model.hidden_size / model.num_heads = {self.head_size} must be even: rotary embedding turns pairs"
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"model.num_heads = {self.num_heads} is not divisible by model.num_kv_heads = {self.num_kv_heads}"
            )
        return self

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    def resolved(self) -> "ModelConfig":
        """The same model with its shape in the fields: read from `huggingface_config` if that is set. Raises
        InputError."""
        return from_huggingface(Path(self.huggingface_config)) if self.huggingface_config else self

    def externals(self) -> dict[str, Any]:
        """What outside the store this table depends on, for a stage's `externals`."""
        if not self.huggingface_config:
            return {}
        path = Path(self.huggingface_config)
        if not path.is_file():
            raise InputError(f"model.huggingface_config: there is no file {path}")
        return {"huggingface_config": sha256_file(path)}


# Settings of a Llama config.json that change the model, with the only value that is supported.
_SUPPORTED = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
    "pretraining_tp": 1,
}


def from_huggingface(path: Path) -> ModelConfig:
    """The shape in a Hugging Face config.json. Raises InputError, naming the setting, for one that would not be
    honoured."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"model.huggingface_config: there is no file {path}") from None
    except ValueError as error:
        raise InputError(f"model.huggingface_config: {path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"model.huggingface_config: {path} is not a JSON object")
    for name, wanted in _SUPPORTED.items():
        if values.get(name, wanted) != wanted:
            raise InputError(
                f"model.huggingface_config: {path} sets {name} = {values[name]!r}; only {wanted!r} is supported"
            )
    rope: Mapping[str, Any] = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise InputError(f"model.huggingface_config: {path}: the rotary settings {rope!r} are not a JSON object")
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise InputError(
            f"model.huggingface_config: {path} scales its rotary embedding ({dict(rope)}); "
            "only rope_type 'default' is supported"
        )
    try:
        heads = values["num_attention_heads"]
        shape = ModelConfig(
            hidden_size=values["hidden_size"],
            num_layers=values["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=values.get("num_key_value_heads") or heads,
            intermediate_size=values["intermediate_size"],
            tie_embeddings=values.get("tie_word_embeddings", False),
            rope_theta=rope.get("rope_theta", values.get("rope_theta", 10_000.0)),
            norm_epsilon=values.get("rms_norm_eps", 1e-6),
            context_tokens=values.get("max_position_embeddings", 2048),
            initializer_std=values.get("initializer_range", 0.02),
        )
    except KeyError as error:
        raise InputError(f"model.huggingface_config: {path} has no {error}") from None
    except ValueError as error:
        raise InputError(f"model.huggingface_config: {path}: {error}") from None
    if values.get("head_dim") not in (None, shape.head_size):
        raise InputError(
            f"model.huggingface_config: {path} sets head_dim = {values['head_dim']}; "
            "only hidden_size / num_attention_heads is supported"
        )
    return shape
