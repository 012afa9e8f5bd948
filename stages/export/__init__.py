"""Export: the forms in which a model ships, each reloaded, measured against the checkpoint, and refused if it lost too
much.

Run: python -m stages.export RECIPE
"""

from stages.base import One, OneOf, Stage
from stages.export.config import ExportConfig, Form
from stages.export.stage import run

STAGE = Stage(
    name="export",
    revision=1,
    config=ExportConfig,
    inputs={"model": OneOf("checkpoint"), "corpus": One("curate"), "tokenizer": One("tokenizer")},
    run=run,
)


__all__ = ["STAGE", "ExportConfig", "Form"]
