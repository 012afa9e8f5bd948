"""How the training is spread over processes, and what passes between them.

Imports neither torch nor transformers: the plan and the recipe's form read this too.
"""

from typing import Literal, Self

from pydantic import model_validator

from stages.config import StageConfig, runtime

Sharding = Literal["full", "hybrid", "gradients", "optimizer", "none"]

# What shards the model's parameters, by FSDP2; the others are replicated, by DDP.
SHARDED = ("full", "hybrid", "gradients")


class ParallelSettings(StageConfig):
    """How the training is spread over processes, and what passes between them."""

    num_processes: int = runtime(1, rounding=True, ge=1, description="Training processes on this machine")
    threads: int = runtime(2, rounding=True, ge=1, description="CPU threads of each process")
    sharding: Sharding = runtime(
        "full",
        rounding=True,
        description="What each of several processes holds a share of. full: parameters, gradients and optimizer states "
        "(FSDP2); hybrid: the same within groups of shard_processes; gradients: gradients and optimizer states, while "
        "parameters stay whole from the forward to the backward pass (FSDP2); optimizer: optimizer states "
        "(ZeroRedundancyOptimizer on DDP); none: nothing (DDP)",
    )
    shard_processes: int | None = runtime(
        None,
        rounding=True,
        ge=2,
        description='With sharding = "hybrid": processes in a group that shards among its own, those of one machine '
        "most often; num_processes is a multiple of it",
    )
    overlap: bool = runtime(
        True,
        rounding=True,
        description="Communication goes on while the device computes; off: each waits for the other, to measure what "
        "the overlap is worth",
    )
    prefetch_layers: int = runtime(
        1,
        rounding=True,
        ge=0,
        description="With sharded parameters: units that are gathered ahead of the one that computes; more hide slower "
        "links and hold more memory",
    )
    layers_per_unit: int = runtime(
        1,
        rounding=True,
        ge=1,
        description="With sharded parameters: decoder layers that are gathered in one message; more suit small layers "
        "and hold more memory",
    )
    bucket_bytes: int = runtime(
        25 << 20,
        rounding=True,
        ge=1024,
        description="With replicated parameters: bytes of gradients that are reduced in one message; less begins "
        "earlier, more costs fewer messages",
    )
    redundant: bool = runtime(
        False,
        rounding=True,
        description="With sharding none or hybrid: processes, or groups of shard_processes, live on without each "
        "other. One that is lost is started again and gets the state of the others, which meanwhile go on with all "
        "rows of each batch. Gradients are summed between them when a backward pass is over, through the host",
    )
    collective_timeout_seconds: float = runtime(
        600.0,
        gt=0,
        description="Longest that a process waits for the others, until the first steps on batches of a size are "
        "measured and around checkpoints; then it ends",
    )
    collective_timeout_ratio: float = runtime(
        5.0,
        ge=3,
        description="Longest that a process waits for the others once steps are measured, as a multiple of the "
        "median of the latest ones (or twice the slowest of them)",
    )
    collective_timeout_least_seconds: float = runtime(
        10.0, gt=0, description="A process waits for the others at least so long, however fast its steps are"
    )

    @model_validator(mode="after")
    def _consistent_parallel(self) -> Self:
        if self.collective_timeout_least_seconds > self.collective_timeout_seconds:
            raise ValueError(
                f"pretrain.collective_timeout_least_seconds = {self.collective_timeout_least_seconds} is more than "
                f"pretrain.collective_timeout_seconds = {self.collective_timeout_seconds}: lower it or raise that"
            )
        self._check_hybrid()
        self._check_redundant()
        for name in ("prefetch_layers", "layers_per_unit"):
            if self.sharding not in SHARDED and not self.is_default(name):
                raise ValueError(
                    f'pretrain.{name} has no effect with pretrain.sharding = "{self.sharding}", which gathers no '
                    "parameters: leave it out"
                )
        if self.sharding in SHARDED and not self.is_default("bucket_bytes"):
            raise ValueError(
                f'pretrain.bucket_bytes has no effect with pretrain.sharding = "{self.sharding}": the messages there '
                "are those of pretrain.layers_per_unit"
            )
        if not self.overlap and not self.is_default("prefetch_layers"):
            raise ValueError("pretrain.prefetch_layers has no effect with pretrain.overlap = false: leave one out")
        return self

    def _check_hybrid(self) -> None:
        if self.sharding != "hybrid":
            if self.shard_processes is not None:
                raise ValueError(
                    f'pretrain.shard_processes has no effect with pretrain.sharding = "{self.sharding}": leave it out, '
                    'or set pretrain.sharding = "hybrid"'
                )
            return
        if self.shard_processes is None:
            raise ValueError('pretrain.sharding = "hybrid" needs pretrain.shard_processes, the size of its groups')
        if self.num_processes % self.shard_processes:
            raise ValueError(
                f"pretrain.num_processes = {self.num_processes} is not a multiple of pretrain.shard_processes = "
                f"{self.shard_processes}"
            )
        if self.num_processes == self.shard_processes:
            raise ValueError(
                f"pretrain.shard_processes = {self.shard_processes} are all pretrain.num_processes: that is "
                'pretrain.sharding = "full"'
            )

    def _check_redundant(self) -> None:
        if not self.redundant:
            return
        if self.sharding not in ("none", "hybrid"):
            raise ValueError(
                f'pretrain.redundant does not go with pretrain.sharding = "{self.sharding}", where the loss of one '
                'process is the loss of a part of the state: use "none", or "hybrid" with pretrain.shard_processes'
            )
        if self.num_processes == 1:
            raise ValueError(
                "pretrain.redundant has no effect with pretrain.num_processes = 1: leave it out or raise that"
            )
