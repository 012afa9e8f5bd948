"""The recipe's `[suites]` table, which curate and evaluate share."""

from pydantic import Field

from stages.config import StageConfig


class SuitesConfig(StageConfig):
    """What the model will be asked, and so what its training text must not hold."""

    names: tuple[str, ...] = Field(("core",), description="Suites: names of shipped ones, or paths of .toml files")
    waived_tasks: tuple[str, ...] = Field(
        (),
        description="lm-eval tasks whose items cannot be read here; training text is not decontaminated against them",
    )
