"""What a recipe says about the model (`[model]`) and about its training (`[pretrain]`).

Imports neither torch nor transformers: the plan and the recipe's form read these classes too.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from data.errors import InputError
from stages.config import StageConfig, runtime, shared
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


class PretrainConfig(StageConfig):
    """How the model is trained. Batch sizes are those of the global batch, whatever the number of processes. Documents
    that share a sequence attend to one another; there is no isolation of documents."""

    model: ModelConfig = shared(ModelConfig)

    mixture: dict[str, float] = Field(
        {}, description="Domain: weight of its sequences in the batch; empty: each domain by its number of tokens"
    )
    sequence_tokens: int = Field(256, ge=2, description="Tokens in one training sequence")
    batch_sequences: int = Field(8, ge=1, description="Sequences in one optimizer step, over all processes")
    num_steps: int = Field(800, ge=1, description="Optimizer steps")
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of the initial weights and of the order of the data")

    learning_rate: float = Field(3e-3, gt=0, description="Peak learning rate")
    warmup_ratio: float = Field(
        0.05, ge=0, le=1, description="Share of the steps over which the learning rate rises linearly"
    )
    final_learning_rate_ratio: float = Field(
        0.05, ge=0, le=1, description="Last learning rate of the cosine, as a share of the peak"
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of AdamW's first moment")
    beta2: float = Field(0.95, ge=0, lt=1, description="Decay of AdamW's second moment")
    epsilon: float = Field(1e-8, gt=0, description="AdamW's epsilon")
    weight_decay: float = Field(0.1, ge=0, description="AdamW's decoupled weight decay, on matrices")
    decay_embeddings: bool = Field(
        True, description="Whether weight decay applies to the embedding matrix too (never to norms)"
    )
    gradient_clip_norm: float = Field(1.0, gt=0, description="Largest global norm of the gradient")
    precision: Literal["bf16", "fp32"] = Field(
        "bf16", description="Precision of matrix products; weights and optimizer states are float32 in both"
    )

    checkpoint_every_steps: int = Field(
        200, ge=1, description="A durable checkpoint after every so many steps, and after the last"
    )
    healthy_steps: int = Field(
        10, ge=1, description="Clean steps after a checkpoint (for the last one: before it) that make it healthy"
    )
    heldout_sequences: int = Field(
        64, ge=1, description="Held-out sequences whose loss is measured at each durable checkpoint"
    )
    heldout_max_ratio: float = Field(
        1.2,
        gt=1,
        description="The last checkpoint is unhealthy if its held-out loss is above the one before times this",
    )

    num_processes: int = runtime(
        1, rounding=True, ge=1, description="Training processes on this machine; more than one: FSDP2"
    )
    threads: int = runtime(2, rounding=True, ge=1, description="CPU threads of each process")
    micro_batch_sequences: int = runtime(
        8, rounding=True, ge=1, description="Most sequences that a process holds in one forward pass"
    )
    compile: bool = runtime(False, rounding=True, description="Compile each decoder layer with torch.compile")
    device: Literal["auto", "cpu", "cuda"] = runtime(
        "auto", rounding=True, description="Where to train; auto: on GPUs if there are any"
    )
    checkpoint_seconds: float = runtime(
        60.0, gt=0, description="Seconds between local checkpoints, which are there for restarts only"
    )
    keep_local: int = runtime(
        2,
        ge=1,
        description="Newest local checkpoints to keep, beside durable ones to be published and one to roll back to",
    )
    max_relaunches: int = runtime(
        3, ge=0, description="Relaunches in a row, without getting further, before the run is given up"
    )
    prefetch_batches: int = runtime(4, ge=1, description="Batches that are read ahead")
    collective_timeout_seconds: float = runtime(
        600.0, gt=0, description="A collective operation that takes longer ends its process"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.model.huggingface_config and self.sequence_tokens > self.model.context_tokens:
            raise ValueError(
                f"pretrain.sequence_tokens = {self.sequence_tokens} is more than "
                f"model.context_tokens = {self.model.context_tokens}"
            )
        if self.num_processes > self.batch_sequences:
            raise ValueError(
                f"pretrain.num_processes = {self.num_processes} is more than "
                f"pretrain.batch_sequences = {self.batch_sequences}: some processes would have nothing to do"
            )
        if any(weight <= 0 for weight in self.mixture.values()):
            raise ValueError("pretrain.mixture: weights must be above 0; leave a domain out to draw nothing from it")
        return self

    @property
    def warmup_steps(self) -> int:
        return round(self.warmup_ratio * self.num_steps)

    @property
    def batch_tokens(self) -> int:
        """Target tokens in one optimizer step."""
        return self.batch_sequences * self.sequence_tokens

    def durable_steps(self) -> tuple[int, ...]:
        """The steps, counted from 1, after which a durable checkpoint is taken; the last step is always among them."""
        return (*range(self.checkpoint_every_steps, self.num_steps, self.checkpoint_every_steps), self.num_steps)


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
