"""The recipe's `[suites]` table, which curate and evaluate share."""

from pydantic import Field

from stages.config import StageConfig


class SuitesConfig(StageConfig):
    """What the model will be asked, and so what its training text must not hold."""

    names: tuple[str, ...] = Field(
        ("core", "regression"),
        description="Suites for every healthy checkpoint: names of shipped ones, or paths of .toml files",
    )
    last_names: tuple[str, ...] = Field(
        ("long_tail", "safety", "efficiency"),
        description="Suites besides for the last checkpoint, for exported models and for adopted ones",
    )
    waived_tasks: tuple[str, ...] = Field(
        (),
        description="lm-eval tasks whose items cannot be read here; training text is not decontaminated against them",
    )

    @property
    def all_names(self) -> tuple[str, ...]:
        """Every suite, once."""
        return tuple(dict.fromkeys((*self.names, *self.last_names)))
