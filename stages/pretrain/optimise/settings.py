"""How gradients become updates: the optimizer, and the learning rate over the steps.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from pydantic import Field

from stages.config import StageConfig


class OptimiseSettings(StageConfig):
    """How gradients become updates: the optimizer, and the learning rate over the steps."""

    num_steps: int = Field(800, ge=1, description="Optimizer steps")
    batch_sequences: int = Field(
        8,
        ge=1,
        description="Sequences in one optimizer step, over all processes; of shorter ones, as many as have the same "
        "number of tokens",
    )
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
