"""How the training is spread over processes, and what passes between them.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from stages.config import StageConfig, runtime


class ParallelSettings(StageConfig):
    """How the training is spread over processes, and what passes between them."""

    num_processes: int = runtime(
        1, rounding=True, ge=1, description="Training processes on this machine; more than one: FSDP2"
    )
    threads: int = runtime(2, rounding=True, ge=1, description="CPU threads of each process")
    collective_timeout_seconds: float = runtime(
        600.0, gt=0, description="A collective operation that takes longer ends its process"
    )
