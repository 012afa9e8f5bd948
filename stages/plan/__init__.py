"""Plan: what a run will cost, by arithmetic alone, before anything is spent.

python -m stages.plan RECIPE
"""

from stages.base import One, Stage
from stages.plan.config import PlanConfig, layout
from stages.plan.stage import run

__all__ = ["STAGE", "PlanConfig"]

STAGE = Stage(
    name="plan",
    revision=6,
    config=PlanConfig,
    inputs={"tokens": One("pretokenize")},
    run=run,
    externals=layout,
)
