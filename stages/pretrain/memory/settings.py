"""In which precision the training computes, and what it keeps in memory.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from stages.config import StageConfig, runtime


class MemorySettings(StageConfig):
    """In which precision the training computes, and what it keeps in memory."""

    precision: Literal["bf16", "fp16", "fp32", "fp8"] = Field(
        "bf16",
        description="Precision of matrix products; weights, optimizer states, reductions and the loss are float32 in "
        "all. fp16: with a loss scale that follows the gradients; fp8: those of the decoder layers, the others in bf16 "
        "(Hopper GPUs only)",
    )
    recompute: Literal["none", "full", "operators", "budget"] = runtime(
        "none",
        rounding=True,
        description="What of the decoder layers is computed again in the backward pass, to need less memory. full: "
        "all; operators: all but recompute_keep; budget: as much as recompute_kept_share asks for",
    )
    recompute_keep: tuple[Literal["attention", "matmul"], ...] = runtime(
        ("attention", "matmul"),
        rounding=True,
        description='With recompute = "operators": results that are kept, those of attention, those of the layers\' '
        "matrix products, or both",
    )
    recompute_kept_share: float = runtime(
        0.5,
        rounding=True,
        gt=0,
        lt=1,
        description='With recompute = "budget": share of the activations to keep. With compile by operators, as torch '
        "finds cheapest; else of whole layers, the last ones",
    )
    offload_optimizer: bool = runtime(
        False,
        rounding=True,
        description="Weights and optimizer states lie in the memory of the host, where the update is made (GPUs only)",
    )
    expandable_segments: bool = runtime(
        True, description="On GPUs: memory grows in segments that can be extended, which fragments least"
    )
    allocator_split_mib: int = runtime(
        0, ge=0, description="On GPUs: larger blocks are never split; 0: any is. In MiB, above 20"
    )
    allocator_collect_share: float = runtime(
        0.0,
        ge=0,
        lt=1,
        description="On GPUs: free unused blocks where more than this share of the memory is taken; 0: only when it is "
        "full",
    )

    @model_validator(mode="after")
    def _consistent_memory(self) -> Self:
        for name, mode in (("recompute_keep", "operators"), ("recompute_kept_share", "budget")):
            if self.recompute != mode and not self.is_default(name):
                raise ValueError(
                    f'pretrain.{name} has no effect without pretrain.recompute = "{mode}": leave it out or set that'
                )
        if not self.recompute_keep:
            raise ValueError('pretrain.recompute_keep names nothing to keep: that is pretrain.recompute = "full"')
        if len(set(self.recompute_keep)) < len(self.recompute_keep):
            raise ValueError(f"pretrain.recompute_keep names something twice: {', '.join(self.recompute_keep)}")
        if 0 < self.allocator_split_mib <= 20:
            raise ValueError(
                f"pretrain.allocator_split_mib = {self.allocator_split_mib} must be above 20, or 0 for no limit"
            )
        return self

    @property
    def allocator_options(self) -> str:
        """The value of torch's variable PYTORCH_ALLOC_CONF; empty: nothing differs from its defaults."""
        options = {
            "expandable_segments:True": self.expandable_segments,
            f"max_split_size_mb:{self.allocator_split_mib}": self.allocator_split_mib,
            f"garbage_collection_threshold:{self.allocator_collect_share}": self.allocator_collect_share,
        }
        return ",".join(option for option, wanted in options.items() if wanted)
