"""The base of every stage's configuration, and what a field may declare about itself.

A field is *identity* unless it says otherwise: it changes the meaning of the result and enters the artifact's key.
`runtime(...)` fields only change how the result is made. `runtime(..., rounding=True)` fields move low-order bits
(world size, threads, micro-batch): they stay out of the key and are recorded in the manifest, so that the store can
name them when two results differ. `shared(...)` fields are filled from the recipe's own top-level table of the same
name.

A field's description is what the forms of the flows show beside it, with its bounds in words.
"""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, to_jsonable_python

from stages.bounds import described

LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"  # of a recipe, and of what else names artifacts
PATTERNS = {LABEL_PATTERN: "letters, digits, dots, _ and -, at most 64, a letter or a digit first"}


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

    def tables(self) -> dict[str, Any]:
        """What a user would have to write for this, ready for JSON: without what has its default, and without copies
        of shared tables."""
        written: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            if role(field) is Role.SHARED or self.is_default(name):
                continue
            plain = _plain(getattr(self, name))
            if plain or not isinstance(field.default, StageConfig):  # else it differs in its copies alone
                written[name] = plain
        return written

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """What a form shows: the bounds in words, no copy of a shared table."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, field in cls.model_fields.items():
            if role(field) is Role.SHARED:
                del properties[name]
                continue
            shown = properties[name]
            flat = {**handler.resolve_ref_schema(shown), **shown}
            if "items" in flat:
                flat["items"] = handler.resolve_ref_schema(flat["items"])
            shown["title"] = name  # as it is written in a recipe, and named in messages
            shown["description"] = described(shown.get("description", ""), flat, PATTERNS)
            if isinstance(field.default, StageConfig | tuple):
                shown["default"] = _plain(field.default, whole=True)
        return schema


def _plain(value: Any, *, whole: bool = False) -> Any:
    """Ready for JSON, without copies of shared tables; tables `whole`, or without what has its default."""
    if isinstance(value, StageConfig):
        fields = type(value).model_fields
        own = [name for name in fields if role(fields[name]) is not Role.SHARED]
        return {name: _plain(getattr(value, name), whole=True) for name in own} if whole else value.tables()
    if isinstance(value, tuple):
        return [_plain(each, whole=whole) for each in value]
    return to_jsonable_python(value)


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
