"""Evaluate a checkpoint, an exported or an adopted model: bits per byte on every held-out domain, and the tasks of the
recipe's suites.

Run: python -m stages.evaluate RECIPE
"""

from stages.base import One, OneOf, Stage
from stages.evaluate.config import EvaluateConfig, externals, narrow
from stages.evaluate.stage import run

STAGE = Stage(
    name="evaluate",
    revision=4,
    config=EvaluateConfig,
    inputs={
        "model": OneOf("checkpoint", "export", "adopt", default="each"),
        "corpus": One("curate"),
        "tokenizer": One("tokenizer"),
    },
    run=run,
    narrow=narrow,
    externals=externals,
)


__all__ = ["STAGE", "EvaluateConfig"]
