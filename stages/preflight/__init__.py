"""Preflight: what would go wrong hours into a training, tried out in a minute. A gate: training needs its artifact.

python -m stages.preflight RECIPE
"""

from stages.base import One, Stage
from stages.preflight.config import PreflightConfig, externals
from stages.preflight.stage import run

__all__ = ["STAGE", "PreflightConfig"]

STAGE = Stage(
    name="preflight",
    revision=4,
    config=PreflightConfig,
    inputs={"tokens": One("pretokenize"), "tokenizer": One("tokenizer"), "plan": One("plan")},
    run=run,
    externals=externals,
)
