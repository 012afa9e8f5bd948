"""How gradients become updates: the optimizer, the learning rate and the size of the batch over the steps.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, model_validator

from stages.config import StageConfig


class BatchPhase(StageConfig):
    """Another size of the batch from a step on."""

    from_step: int = Field(ge=2, description="First optimizer step, counted from 1, that has this size")
    batch_sequences: int = Field(ge=1, description="Sequences in one optimizer step, as in pretrain.batch_sequences")


class OptimiseSettings(StageConfig):
    """How gradients become updates: the optimizer, the learning rate and the size of the batch over the steps."""

    num_steps: int = Field(800, ge=1, description="Optimizer steps")
    batch_sequences: int = Field(
        8,
        ge=1,
        description="Sequences in one optimizer step, over all processes; of shorter ones, as many as have the same "
        "number of tokens",
    )
    batch_ramp: tuple[BatchPhase, ...] = Field(
        (),
        description="Sizes that take the place of batch_sequences from a step on; each as {from_step, "
        "batch_sequences}. Each batch that is left out before that step brings it one step forward",
    )
    learning_rate: float = Field(3e-3, gt=0, description="Peak learning rate")
    schedule: Literal["cosine", "wsd", "linear", "constant"] = Field(
        "cosine",
        description="Learning rate after the warm-up. cosine and linear: falls to the end; wsd: stays at the peak and "
        "falls in the last decay_ratio of the training; constant: stays",
    )
    schedule_unit: Literal["steps", "tokens"] = Field(
        "steps",
        description="What the schedule counts: steps, or places for tokens, which differ where batches grow",
    )
    warmup_ratio: float = Field(
        0.05, ge=0, le=1, description="Share of the training over which the learning rate rises linearly"
    )
    decay_ratio: float = Field(
        0.2,
        gt=0,
        le=1,
        description="With wsd: share of the training, its last part, over which the learning rate falls",
    )
    decay_shape: Literal["1-sqrt", "linear"] = Field(
        "1-sqrt",
        description="With wsd: how it falls. 1-sqrt: by the square root of how much of the decay is over, so fast at "
        "first; linear: evenly",
    )
    final_learning_rate_ratio: float = Field(0.05, ge=0, le=1, description="Last learning rate, as a share of the peak")
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw",
        description="adamw, or muon for the matrices of the decoder layers and adamw for everything else; one learning "
        "rate serves both",
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of AdamW's first moment")
    beta2: float = Field(0.95, ge=0, lt=1, description="Decay of AdamW's second moment")
    epsilon: float = Field(1e-8, gt=0, description="AdamW's epsilon")
    muon_momentum: float = Field(0.95, ge=0, lt=1, description="Decay of Muon's momentum")
    weight_decay: float = Field(0.1, ge=0, description="Decoupled weight decay, on matrices")
    decay_embeddings: bool = Field(
        True, description="Whether weight decay applies to the embedding matrix too (never to norms)"
    )
    optimizer_states: Literal["fp32", "8bit"] = Field(
        "fp32", description="How moments of matrices are kept; 8bit: in blocks of 256 with a scale each"
    )
    gradient_clip_norm: float = Field(1.0, gt=0, description="Largest global norm of the gradient")
    ema_decay: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Decay of an average of the weights, which evaluation and export use in their stead; 0: none is "
        "kept",
    )

    @model_validator(mode="after")
    def _consistent_optimise(self) -> Self:
        if self.schedule == "wsd" and self.warmup_ratio + self.decay_ratio > 1:
            raise ValueError(
                f"pretrain.warmup_ratio = {self.warmup_ratio} and pretrain.decay_ratio = {self.decay_ratio} together "
                "are more than the whole training"
            )
        steps = [1, *(phase.from_step for phase in self.batch_ramp)]
        if any(later <= earlier for earlier, later in pairwise(steps)):
            raise ValueError(f"pretrain.batch_ramp: from_step must rise from phase to phase, not {steps[1:]}")
        for name, needed, value in (
            ("decay_ratio", "schedule", "wsd"),
            ("decay_shape", "schedule", "wsd"),
            ("muon_momentum", "optimizer", "muon"),
        ):
            if getattr(self, needed) != value and not self.is_default(name):
                raise ValueError(f'pretrain.{name} has no effect without pretrain.{needed} = "{value}": leave it out')
        if self.schedule == "constant" and not self.is_default("final_learning_rate_ratio"):
            raise ValueError(
                'pretrain.final_learning_rate_ratio has no effect with pretrain.schedule = "constant": leave it out'
            )
        if self.schedule_unit == "tokens" and not self.batch_ramp:
            raise ValueError(
                'pretrain.schedule_unit = "tokens" has no effect without pretrain.batch_ramp: all batches have as many '
                "places"
            )
        return self

    def batch_sizes(self) -> tuple[tuple[int, int], ...]:
        """(first step, sequences) of each phase of the ramp, steps counted from 1; the first begins at 1."""
        return ((1, self.batch_sequences), *((phase.from_step, phase.batch_sequences) for phase in self.batch_ramp))

    def sequences_through(self, step: int) -> int:
        """Places for sequences in steps 1 to `step`."""
        sizes = self.batch_sizes()
        ends = [*(first - 1 for first, _ in sizes[1:]), step]
        return sum(size * max(0, min(end, step) - first + 1) for (first, size), end in zip(sizes, ends, strict=True))
