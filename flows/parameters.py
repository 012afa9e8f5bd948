"""What a flow is given, checked before it begins, in words that name the field: a run may come from the form, a
schedule, a trigger or a call.

Nothing here imports Prefect.
"""

import inspect
import json
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping
from enum import Enum
from functools import wraps
from typing import Any, TypeVar, cast

from pydantic import ValidationError, create_model

from data.errors import InputError
from stages.config import StageConfig
from stages.recipe import STAGES, Recipe, parse
from stages.tables import faults

RECIPE = "recipe"
MOST_BYTES = 400_000  # as JSON; Prefect refuses a little more, and keeps what it takes with every run
T = TypeVar("T")


def checked(body: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    """The body of a flow, which takes its parameters as they come: a recipe as its tables too. Raises InputError for
    what a user can mend, before anything is done."""
    signature = inspect.signature(body, eval_str=True)

    @wraps(body)
    async def checking(*positional: Any, **named: Any) -> T:
        return await body(**validated(signature, signature.bind(*positional, **named).arguments))

    return checking


def validated(signature: inspect.Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a flow of this signature is given, as their types. Raises InputError, with a line for each
    fault."""
    require_json(given)
    problems, values, model = [], dict(given), _model_of_others(signature)
    try:
        if RECIPE in given and not isinstance(given[RECIPE], Recipe):
            values[RECIPE] = parse(given[RECIPE], "this run")
    except InputError as error:
        problems.append(str(error))
    try:
        others = model.model_validate({name: value for name, value in given.items() if name != RECIPE})
        values |= {name: getattr(others, name) for name in others.model_fields_set}
    except ValidationError as error:
        problems += ["the other parameters are not valid:", faults(error, model, "parameters")]
    if problems:
        raise InputError("\n".join(problems))
    return values


def _model_of_others(signature: inspect.Signature) -> type[StageConfig]:
    """Of all parameters but the recipe."""
    fields: dict[str, Any] = {
        name: (each.annotation, ... if each.default is inspect.Parameter.empty else each.default)
        for name, each in signature.parameters.items()
        if name != RECIPE
    }
    return cast(type[StageConfig], create_model("Parameters", __base__=StageConfig, **fields))


def require_json(given: Mapping[str, Any]) -> None:
    """Raises InputError, naming the place, for what JSON does not give back as it was, and for too much of it."""
    for fault in _strange(given, ""):
        raise InputError(f"{fault}; the parameters of a run are kept as JSON")
    plain = {name: value.tables() if isinstance(value, StageConfig) else value for name, value in given.items()}
    size = _bytes(plain)
    if size > MOST_BYTES:
        where, share = _largest(plain)
        raise InputError(
            f"the parameters of this run are {size:,} bytes as JSON, and {MOST_BYTES:,} is the most; {where} alone is "
            f"{share:,}: name many files by one pattern, as corpus/**/*.jsonl, and put long lists into files"
        )


def require_inputs(stage: str, inputs: Mapping[str, Any]) -> None:
    """Raises InputError for an input that the stage does not take."""
    known = STAGES[stage].inputs
    for name in inputs:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise InputError(f"inputs.{name}: {stage} {takes}")


def _strange(value: Any, where: str) -> Iterator[str]:
    """What is no JSON, and where it stands."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield f"{where or 'parameters'}: the key {key!r} must be a text, as {str(key)!r}"
            else:
                yield from _strange(inner, f"{where}.{key}" if where else key)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _strange(inner, f"{where}.{place}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{where}: must be a finite number, got {value}"
    elif not isinstance(value, StageConfig | Enum) and value is not None and type(value) not in (str, int, float, bool):
        yield f"{where}: must be a text, a number, true, false, a list or a table, got a {type(value).__name__}"


def _bytes(value: Any) -> int:
    return len(json.dumps(value))


def _largest(tables: Mapping[str, Any]) -> tuple[str, int]:
    """The innermost table or list that makes up more than half of all, and its size in bytes."""
    where, inner, whole = "", tables, _bytes(tables)
    while isinstance(inner, Mapping) and inner:
        name = max(inner, key=lambda each: _bytes(inner[each]))
        if _bytes(inner[name]) <= whole / 2:
            break
        where, inner = f"{where}.{name}" if where else name, inner[name]
    return where or "parameters", _bytes(inner)
