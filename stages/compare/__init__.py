"""Compare an evaluation with a baseline, item by item: what regressed, what improved, and how sure that is.

Run: python -m stages.compare RECIPE
"""

from stages.base import Chosen, OneOf, Stage
from stages.compare.chosen import choose_baseline
from stages.compare.config import CompareConfig
from stages.compare.stage import run

STAGE = Stage(
    name="compare",
    revision=2,
    config=CompareConfig,
    inputs={
        "candidate": OneOf("evaluate"),
        "baseline": Chosen("evaluate", "baseline", by=choose_baseline),
    },
    run=run,
)

__all__ = ["STAGE", "CompareConfig"]
