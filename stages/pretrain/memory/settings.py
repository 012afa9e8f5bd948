"""In which precision the training computes, and what it keeps in memory.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from typing import Literal

from pydantic import Field

from stages.config import StageConfig


class MemorySettings(StageConfig):
    """In which precision the training computes, and what it keeps in memory."""

    precision: Literal["bf16", "fp32"] = Field(
        "bf16", description="Precision of matrix products; weights and optimizer states are float32 in both"
    )
