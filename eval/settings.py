"""What a suite says of a task, and the base of what each source lets it set besides."""

from pydantic import BaseModel, ConfigDict


class Definition(BaseModel):
    """Frozen, and without room for unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Settings(Definition):
    """A task's table `settings`; nothing by itself."""
