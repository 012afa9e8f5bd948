"""Report: one self-contained HTML page that shows a whole run.

Run: python -m stages.report RECIPE
"""

from stages.base import Many, One, Stage
from stages.report.config import ReportConfig
from stages.report.stage import run

STAGE = Stage(
    name="report",
    revision=6,
    config=ReportConfig,
    inputs={
        "corpus": One("curate"),
        "tokenizer": One("tokenizer"),
        "tokens": One("pretokenize"),
        "plan": One("plan"),
        "preflight": One("preflight"),
        "pretrain": One("pretrain"),
        "evaluations": Many("evaluate"),
        "comparisons": Many("compare", optional=True),
        "export": One("export"),
    },
    run=run,
)

__all__ = ["STAGE", "ReportConfig"]
