"""What a recipe says about the shape of the model (`[model]`), or the Hugging Face config.json that says it.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, model_validator

from data.errors import InputError
from stages.config import StageConfig, runtime
from stages.files import sha256_file

Family = Literal["llama", "mistral", "qwen2", "qwen3", "granite"]
FAMILIES: tuple[Family, ...] = get_args(Family)
MULTIPLIERS = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
# Settings that not every family has, and those that do; elsewhere they must keep their defaults.
OF_FAMILIES: dict[str, tuple[Family, ...]] = {
    "head_dim": ("llama", "mistral", "qwen3"),
    "attention_bias": ("llama", "qwen3", "granite"),
    "mlp_bias": ("llama", "granite"),
    **dict.fromkeys((*MULTIPLIERS, "mup_base_hidden_size"), ("granite",)),
}
# Ways to stretch the rotary embedding: keys that one needs, and keys that it may have.
ROPE_KEYS: dict[str, tuple[set[str], set[str]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "dynamic": ({"factor"}, set()),
    "yarn": (
        {"factor", "original_max_position_embeddings"},
        {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
    ),
    "longrope": (
        {"short_factor", "long_factor", "original_max_position_embeddings"},
        {"attention_factor", "factor"},
    ),
    "llama3": ({"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"}, set()),
}
RopeValue = bool | int | float | str | tuple[float, ...]


class ModelConfig(StageConfig):
    """The shape of a decoder. The number of vocabulary rows is the tokenizer's and is not set here."""

    huggingface_config: str = runtime(
        "",
        description=f"Path of a Hugging Face config.json (model_type {', '.join(FAMILIES)}) that gives the shape "
        "instead of the fields below",
    )
    family: Family = Field(
        "llama",
        description="Architecture, by the model_type of transformers. All are pre-norm decoders with rotary embedding "
        "and a gated feed-forward block; qwen2 has biases of queries, keys and values (and goes with its own "
        "tokenizer only: transformers reads any other as that), qwen3 norms of queries and keys, granite multipliers, "
        "as maximal update parametrisation needs them",
    )
    hidden_size: int = Field(128, ge=8, description="Width of the residual stream")
    num_layers: int = Field(4, ge=1, description="Decoder layers")
    num_heads: int = Field(2, ge=1, description="Query heads")
    num_kv_heads: int = Field(
        2, ge=1, description="Key and value heads; fewer than num_heads is grouped-query attention"
    )
    head_dim: int = Field(
        0, ge=0, description="Width of a head; 0: hidden_size / num_heads, the only one in families qwen2 and granite"
    )
    intermediate_size: int = Field(320, ge=8, description="Width of the gated feed-forward block")
    attention_bias: bool = Field(
        False, description="Biases of all projections of attention (families llama, qwen3 and granite)"
    )
    mlp_bias: bool = Field(False, description="Biases of the feed-forward block (families llama and granite)")
    tie_embeddings: bool = Field(True, description="Input embedding and output projection are one matrix")
    rope_theta: float = Field(10_000.0, gt=0, description="Base of the rotary position frequencies")
    rope_scaling: dict[str, RopeValue] = Field(
        {},
        description="How the rotary embedding is stretched: rope_type (linear, dynamic, yarn, longrope or llama3) and "
        "its keys, as in rope_parameters of transformers; empty: not at all",
    )
    norm_epsilon: float = Field(1e-5, gt=0, description="Epsilon of RMSNorm")
    context_tokens: int = Field(256, ge=2, description="Longest sequence that the model is made for")
    embedding_multiplier: float = Field(1.0, gt=0, description="Of the embedded tokens (family granite)")
    attention_multiplier: float = Field(
        0.0,
        ge=0,
        description="Of the products of queries and keys (family granite); 0: 1 / sqrt(head width), with "
        "mup_base_hidden_size 1 / head width",
    )
    residual_multiplier: float = Field(
        1.0, gt=0, description="Of what each block adds to the residual stream (family granite)"
    )
    logits_scaling: float = Field(
        1.0, gt=0, description="Divisor of the logits (family granite); with mup_base_hidden_size at the base width"
    )
    initializer_std: float = Field(
        0.02,
        gt=0,
        description="Standard deviation of the initial weights; output projections: divided by sqrt(2 num_layers)",
    )
    mup_base_hidden_size: int = Field(
        0,
        ge=0,
        description="Maximal update parametrisation (family granite): the width at which learning rate and "
        "initialisation were tuned, so that they hold at hidden_size too; 0: standard parametrisation",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.huggingface_config:
            self._require_defaults()
            return self
        for name, families in OF_FAMILIES.items():
            if not self.is_default(name) and self.family not in families:
                raise ValueError(
                    f'model.{name} has no effect with model.family = "{self.family}": leave it out; families that '
                    f"have it: {', '.join(families)}"
                )
        if self.hidden_size % self.num_heads and (not self.head_dim or self.family == "llama"):
            raise ValueError(
                f"model.hidden_size = {self.hidden_size} is not divisible by model.num_heads = {self.num_heads}"
            )
        if self.head_size % 2:
            name = "model.head_dim" if self.head_dim else "model.hidden_size / model.num_heads"
            raise ValueError(f"{name} = {self.head_size} must be even: rotary embedding turns pairs")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"model.num_heads = {self.num_heads} is not divisible by model.num_kv_heads = {self.num_kv_heads}"
            )
        self._check_rope()
        return self

    def _require_defaults(self) -> None:
        fields = type(self).model_fields
        set_too = [name for name in fields if name != "huggingface_config" and not self.is_default(name)]
        if set_too:
            raise ValueError(
                f"model.{set_too[0]} has no effect with model.huggingface_config, which gives the whole shape: leave "
                "one of them out"
            )

    def _check_rope(self) -> None:
        """Raises ValueError for rotary settings that transformers would not follow, or only with a warning."""
        if not self.rope_scaling:
            return
        kind = self.rope_scaling.get("rope_type")
        if kind not in ROPE_KEYS:
            raise ValueError(f"model.rope_scaling: rope_type = {kind!r} is not one of {', '.join(ROPE_KEYS)}")
        needed, optional = ROPE_KEYS[kind]
        keys = self.rope_scaling.keys() - {"rope_type"}
        if missing := needed - keys:
            raise ValueError(f'model.rope_scaling: rope_type "{kind}" needs {", ".join(sorted(missing))}')
        if unknown := keys - needed - optional:
            raise ValueError(f'model.rope_scaling: {min(unknown)} has no effect with rope_type "{kind}": leave it out')
        for name in sorted(keys):
            self._check_rope_value(name, self.rope_scaling[name])

    def _check_rope_value(self, name: str, value: RopeValue) -> None:
        if name in ("short_factor", "long_factor"):
            if not isinstance(value, tuple) or len(value) != self.head_size // 2 or min(value) <= 0:
                raise ValueError(
                    f"model.rope_scaling: {name} must list {self.head_size // 2} numbers above 0, one for each pair "
                    "of a head"
                )
        elif name == "truncate":
            if not isinstance(value, bool):
                raise ValueError(f"model.rope_scaling: truncate = {value!r} must be true or false")
        elif name == "original_max_position_embeddings":
            if type(value) is not int or not 0 < value <= self.context_tokens:
                raise ValueError(
                    f"model.rope_scaling: {name} = {value!r} must be a number of tokens, at most "
                    f"model.context_tokens = {self.context_tokens}"
                )
        elif isinstance(value, bool | str | tuple) or value <= 0 or (name == "factor" and value < 1):
            least = "at least 1" if name == "factor" else "above 0"
            raise ValueError(f"model.rope_scaling: {name} = {value!r} must be a number {least}")

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden_size // self.num_heads

    @property
    def width_ratio(self) -> float:
        """hidden_size over the width of the model that learning rate and initialisation are for."""
        return self.hidden_size / self.mup_base_hidden_size if self.mup_base_hidden_size else 1.0

    @property
    def input_bias(self) -> bool:
        """Whether the projections to queries, keys and values have biases; `attention_bias` is about the output's
        too."""
        return self.attention_bias or self.family == "qwen2"

    def resolved(self) -> "ModelConfig":
        """The same model with its shape in the fields: read from `huggingface_config` if that is set. Raises
        InputError."""
        from stages.pretrain.model.config_json import from_huggingface

        return from_huggingface(Path(self.huggingface_config)) if self.huggingface_config else self

    def externals(self) -> dict[str, Any]:
        """What outside the store this table depends on, for a stage's `externals`."""
        if not self.huggingface_config:
            return {}
        path = Path(self.huggingface_config)
        if not path.is_file():
            raise InputError(f"model.huggingface_config: there is no file {path}")
        return {"huggingface_config": sha256_file(path)}
