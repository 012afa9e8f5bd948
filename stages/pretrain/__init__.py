"""Pretraining: the model of the recipe, trained on its token shards; healthy checkpoints become artifacts while it goes
on.

    python -m stages.pretrain deployments/recipes/demo.toml

This package's supervising side imports no torch; the training processes are `stages.pretrain.worker`.
"""

from stages.base import One, Stage
from stages.pretrain.config import PretrainConfig
from stages.pretrain.supervision.supervisor import forget, pretrain
from stages.pretrain.trials import trial

__all__ = ["STAGE", "trial"]

STAGE = Stage(
    name="pretrain",
    revision=3,
    config=PretrainConfig,
    inputs={
        "tokens": One("pretokenize"),
        "plan": One("plan", runtime=True),
        "preflight": One("preflight", runtime=True),
    },
    run=pretrain,
    externals=lambda config, store: config.model.externals(),
    resumes=True,
    derives=("checkpoint",),
    forget=forget,
)
