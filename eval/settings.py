"""What a task may set beside what all tasks have: the base of each source's own settings."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A task's table `settings`; nothing by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
