"""How the model is computed: its attention, its loss, and what is compiled.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from typing import Literal

from pydantic import Field

from stages.config import StageConfig, runtime


class ComputeSettings(StageConfig):
    """How the model is computed: its attention, its loss, and what is compiled."""

    z_loss: float = Field(
        0.0,
        ge=0,
        description="Weight of the squared logarithm of the softmax's denominator, which is added to each token's "
        "loss; 0: none",
    )
    micro_batch_sequences: int = runtime(
        8,
        rounding=True,
        ge=1,
        description="Most sequences that a process holds in one forward pass; of shorter ones, as many as have the "
        "same number of tokens",
    )
    loss_chunk_tokens: int = runtime(
        1024,
        rounding=True,
        ge=16,
        description="Tokens whose scores over the vocabulary are held at a time",
    )
    attention: Literal["sdpa", "eager", "flash", "flex"] = runtime(
        "sdpa",
        rounding=True,
        description="What computes attention: torch's scaled_dot_product_attention (on CPUs, kernels of our own for "
        "narrow heads), plain matrix products, or (on GPUs only) the variable-length kernel of flash "
        "attention or flex_attention",
    )
    compile: bool = runtime(False, rounding=True, description="Compile each decoder layer with torch.compile")
    liger: Literal["auto", "off"] = runtime(
        "auto",
        rounding=True,
        description="Kernels of the package liger-kernel for norms, rotary embedding and feed-forward; auto: on GPUs "
        "where it is installed",
    )
