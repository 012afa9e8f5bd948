"""What a user wrote: a TOML (or JSON) file, `--set table.field=value` over it, and faults in the user's own words."""

import difflib
import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from data.errors import InputError
from stages.config import StageConfig

# What TOML calls the shapes that pydantic asks for.
SHAPES = {
    "tuple_type": "a list, in square brackets",
    "dict_type": "a table, in braces",
    "model_type": "a table, in braces",
}


def read_tables(path: Path, kind: str, where: str, settings: Sequence[str] = ()) -> dict[str, Any]:
    """The tables of a file, with `table.field=value` settings over them. `kind` is what the file should be ("recipe"),
    `where` says where such files are. Raises InputError for anything a user can mend."""
    try:
        text = path.read_text(encoding="utf-8")
        tables = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"there is no {kind} {path}; {where}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; a {kind} is a .toml or .json file") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} cannot be read as a {kind}: {error}") from None
    if not isinstance(tables, dict):
        raise InputError(f"{path} cannot be read as a {kind}: it holds a {type(tables).__name__}, not tables")
    for setting in settings:
        _set(tables, setting)
    return tables


def faults(
    error: ValidationError,
    model: type[StageConfig],
    kind: str,
    *,
    skip: Callable[[Sequence[Any]], bool] = lambda where: False,
) -> str:
    """A line for each fault that pydantic found, naming the field; without those in places that `skip` is true of."""
    return "\n".join(f"  {_explained(entry, model, kind)}" for entry in error.errors() if not skip(entry["loc"]))


def _set(tables: dict[str, Any], setting: str) -> None:
    name, equals, text = setting.partition("=")
    if not equals or not name.strip():
        raise InputError(f"--set {setting!r} is not of the form table.field=value")
    *parents, field = name.strip().split(".")
    table: Any = tables
    for parent in parents:
        table = table.setdefault(parent, {}) if isinstance(table, dict) else None
        if not isinstance(table, dict):
            raise InputError(f"--set {setting!r}: {parent} is not a table")
    table[field] = _value(text)


def _value(text: str) -> Any:
    """A TOML value, or plain text where it is none: `--set name=trial` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explained(entry: ErrorDetails, model: type[StageConfig], kind: str) -> str:
    where = ".".join(str(part) for part in entry["loc"]) or kind
    if entry["type"] == "extra_forbidden":
        *parents, unknown = entry["loc"]
        known = _fields_at(model, parents)
        near = _nearest(str(unknown), known)
        return f"{where}: unknown key" + (f"; did you mean {near}?" if near else f"; known here: {', '.join(known)}")
    if entry["type"] == "missing":
        return f"{where}: missing, and it has no default"
    if shape := SHAPES.get(entry["type"]):
        return f"{where}: Input should be {shape}, got {entry['input']!r}"
    if entry["type"] == "value_error":
        said = entry["msg"].removeprefix("Value error, ")
        named, colon, rest = said.partition(": ")  # a model may name the place itself, and where more than one is meant
        if colon and where.startswith(named):
            said = rest
        return said if said.startswith(f"{where}.") else f"{where}: {said}"
    return f"{where}: {entry['msg']}, got {entry['input']!r}"


def _nearest(word: str, known: Sequence[str]) -> str:
    """What a user may have meant, if anything: before all others a name of the same letters."""
    near = difflib.get_close_matches(word, known, n=len(known))
    same = [name for name in near if sorted(name) == sorted(word)]
    return next(iter([*same, *near]), "")


def _fields_at(model: type[StageConfig], parents: Sequence[Any]) -> list[str]:
    config: Any = model
    for parent in parents:
        if isinstance(parent, int):
            continue
        annotation = config.model_fields[parent].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        config = next(c for c in candidates if isinstance(c, type) and issubclass(c, StageConfig))
    return list(config.model_fields)
