"""How the training is kept going.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from stages.config import StageConfig, runtime


class SupervisionSettings(StageConfig):
    """How the training is kept going."""

    max_relaunches: int = runtime(
        3, ge=0, description="Relaunches in a row, without getting further, before the run is given up"
    )
    max_exclusions: int = runtime(
        3, ge=0, description="Batches to leave out, one for each step that stays not finite when it is replayed"
    )
    grace_seconds: float = runtime(
        25.0,
        gt=0,
        description="Time for a last checkpoint once the run is asked to stop (SIGTERM, SIGINT, SIGUSR1); what asks "
        "must allow a little more before it kills",
    )
    least_processes: int | None = runtime(
        None,
        ge=1,
        description="Fewest processes with which the run goes on while some cannot be had; empty: all of num_processes "
        "or none",
    )
