"""The canonical identity of a configuration, and the difference between two.

Two configurations have one fingerprint exactly if they mean the same. What cannot be encoded without doubt (a set, an
object, NaN) is refused: a key that changes between runs, or that does not change when it should, is worse than an
error.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from stages.config import Role, StageConfig, role

KEY_HEX_DIGITS = 12


def canonical(value: Any, where: str = "value") -> Any:
    """`value` as plain JSON types with one form for one meaning. Raises TypeError for what has none."""
    if isinstance(value, StageConfig):
        return identity(value, where)
    if isinstance(value, Enum):
        return canonical(value.value, where)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{where} is {value}: it has no place in an identity")
        return 0.0 if value == 0 else value
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, (list, tuple)):
        return [canonical(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}: only text keys can be fingerprinted")
        return {key: canonical(value[key], f"{where}.{key}") for key in sorted(value)}
    raise TypeError(f"{where} is a {type(value).__name__}, which has no canonical form")


def identity(config: StageConfig, where: str = "") -> dict[str, Any]:
    """The fields of `config` that enter a key, nested ones included, runtime ones left out."""
    prefix = f"{where}." if where else ""
    return {
        name: canonical(getattr(config, name), prefix + name)
        for name, field in type(config).model_fields.items()
        if role(field) in (Role.IDENTITY, Role.SHARED)
    }


def rounding(config: StageConfig) -> dict[str, Any]:
    """The fields of `config`, by dotted name, that may move low-order bits of a result."""
    found: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if role(field) is Role.ROUNDING:
            found[name] = canonical(value, name)
        elif isinstance(value, StageConfig):
            found |= {f"{name}.{inner}": entry for inner, entry in rounding(value).items()}
    return found


def digest(value: Any) -> str:
    """sha256, in hex, of the canonical form of `value`."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def key(**parts: Any) -> str:
    """The key of an artifact: the first digits of the digest of all that it was made from."""
    return digest(parts)[:KEY_HEX_DIGITS]


def flatten(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, leaf) of a canonical value."""
    if isinstance(value, dict) and value:
        for name in value:
            yield from flatten(value[name], f"{where}.{name}" if where else name)
    elif isinstance(value, list) and value and any(isinstance(item, (dict, list)) for item in value):
        for index, item in enumerate(value):
            yield from flatten(item, f"{where}[{index}]")
    else:
        yield where, value


def difference(a: Any, b: Any) -> list[tuple[str, Any, Any]]:
    """(dotted name, in a, in b) wherever the canonical forms of two values differ; MISSING where one has no such
    field."""
    left, right = dict(flatten(canonical(a))), dict(flatten(canonical(b)))
    names = [*left, *(name for name in right if name not in left)]
    return [
        (name, left.get(name, MISSING), right.get(name, MISSING))
        for name in names
        if left.get(name, MISSING) != right.get(name, MISSING)
    ]


class _Missing:
    def __repr__(self) -> str:
        return "(absent)"


MISSING = _Missing()
