"""The base of every stage's configuration, and what a field may declare about itself.

A field is *identity* unless it says otherwise: it changes the meaning of the result and enters the artifact's key.
`runtime(...)` fields only change how the result is made. `runtime(..., rounding=True)` fields move low-order bits
(world size, threads, micro-batch): they stay out of the key and are recorded in the manifest, so that the store can
name them when two results differ. `shared(...)` fields are filled from the recipe's own top-level table of the same
name.
"""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"  # of a recipe, and of what else names artifacts


class Role(StrEnum):
    """How a field takes part in an artifact's key."""

    IDENTITY = "identity"
    RUNTIME = "runtime"
    ROUNDING = "rounding"
    SHARED = "shared"


class StageConfig(BaseModel):
    """Frozen, keyword-only, and without room for unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    def is_default(self, name: str) -> bool:
        """Whether a field has the value that it has where nobody sets it."""
        return bool(getattr(self, name) == type(self).model_fields[name].default)


def runtime(default: Any, *, rounding: bool = False, **field: Any) -> Any:
    """A field that is not identity. With `rounding`, one that may move low-order bits of the result."""
    role = Role.ROUNDING if rounding else Role.RUNTIME
    return Field(default, json_schema_extra={"role": role.value}, **field)


def shared(table: type[StageConfig]) -> Any:
    """A field that the recipe fills from its top-level table of the field's name."""
    return Field(
        table(), json_schema_extra={"role": Role.SHARED.value}, description="Filled from the recipe's own table"
    )


def role(field: FieldInfo) -> Role:
    """The role that a field of a `StageConfig` was declared with."""
    extra = field.json_schema_extra
    return Role(str(extra.get("role", Role.IDENTITY.value))) if isinstance(extra, dict) else Role.IDENTITY


def shared_fields(config: type[StageConfig]) -> tuple[str, ...]:
    """Names of the fields that are filled from the recipe's shared tables."""
    return tuple(name for name, field in config.model_fields.items() if role(field) is Role.SHARED)
