"""When checkpoints are taken, what makes one healthy, and how many are kept.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from typing import Self

from pydantic import Field, model_validator

from stages.config import StageConfig, runtime


class CheckpointSettings(StageConfig):
    """When checkpoints are taken, what makes one healthy, and how many are kept."""

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

    checkpoint_seconds: float | None = runtime(
        None,
        gt=0,
        description="Seconds between local checkpoints, which are there for restarts only; empty: from the measured "
        "cost of one and from the failures seen, between 10 seconds and 10 minutes",
    )
    asynchronous_checkpoints: bool = runtime(
        True,
        description="Training goes on while a checkpoint is written; off: it waits, which needs no second copy of the "
        "training state in the memory of the host",
    )
    keep_local: int = runtime(
        2,
        ge=1,
        description="Newest local checkpoints to keep, beside durable ones to be published and one to roll back to",
    )
    keep_every: int | None = runtime(
        None,
        ge=1,
        description="Of the durable checkpoints, every so many-th stays in the run directory and in durable_url, "
        "beside the newest ones, the best by held-out loss and one to roll back to; none: only these",
    )
    failures_per_day: float = runtime(
        1.0,
        gt=0,
        le=10_000,
        description="Failures of the whole run to expect in a day, as long as none have been seen; how often to save "
        "follows from it",
    )
    durable_url: str = runtime(
        "",
        description="Folder, as an fsspec URL, where healthy durable checkpoints are copied to, and where a run that "
        "has lost its machine goes on from; empty: none",
    )
    durable_wait_seconds: float = runtime(
        600.0,
        gt=0,
        description="Longest wait for durable_url, without a part of a checkpoint getting through: at the end of the "
        "run, and at its beginning where no checkpoint is on this machine",
    )

    @model_validator(mode="after")
    def _durable_settings(self) -> Self:
        if not self.durable_url and not self.is_default("durable_wait_seconds"):
            raise ValueError("pretrain.durable_wait_seconds has no effect without pretrain.durable_url: leave it out")
        path = self.durable_url.removeprefix("file://").removeprefix("local://")
        if path and "://" not in path and not path.startswith("/"):
            raise ValueError(
                f"pretrain.durable_url = {self.durable_url!r} is a relative path, another folder for each place that "
                f"the command is run from: write file:///{path} if /{path} is meant"
            )
        return self
