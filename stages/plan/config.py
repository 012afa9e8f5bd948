"""What a recipe says about the plan (`[plan]`); the model and its training stand in tables of their own."""

from typing import Any, Protocol

from pydantic import Field

from stages.config import StageConfig, shared
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.store import Store

LAYOUT_FIELDS = (
    *("num_processes", "micro_batch_sequences", "attention", "keep_local", "device", "compile", "loss_chunk_tokens"),
    *("keep_every", "asynchronous_checkpoints"),
    *("sharding", "shard_processes", "redundant", "overlap", "prefetch_layers", "layers_per_unit"),
    *("recompute", "recompute_keep", "recompute_kept_share", "offload_optimizer"),
)


class PlanConfig(StageConfig):
    model: ModelConfig = shared(ModelConfig)
    pretrain: PretrainConfig = shared(PretrainConfig)
    most_epochs: float = Field(
        4.0,
        gt=0,
        description="Warn where a domain is repeated more often; up to 4 epochs are about as good as new text "
        "(Muennighoff et al., Scaling Data-Constrained Language Models, 2023)",
    )
    step_seconds: float | None = Field(
        None,
        gt=0,
        description="Seconds that a step takes, as preflight or an earlier run has measured them; with them the plan "
        "says how far apart durable checkpoints are in time, and warns if that is unwise",
    )


class OfTraining(Protocol):
    """The configuration of a stage that is about a training."""

    @property
    def model(self) -> ModelConfig: ...

    @property
    def pretrain(self) -> PretrainConfig: ...


def layout(config: OfTraining, store: Store, **more: Any) -> dict[str, Any]:
    """The plan is about one layout, so the layout is in its key, although it is not in that of the training. `more`:
    what else a stage depends on there."""
    fields = {name: getattr(config.pretrain, name) for name in LAYOUT_FIELDS}
    return {**config.model.externals(), "layout": fields | more}
