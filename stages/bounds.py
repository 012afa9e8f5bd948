"""What a field may hold, in words: forms show a field's description, and not the bounds of its schema."""

from collections.abc import Iterator, Mapping
from typing import Any

LARGEST_SPELLED = 10**15


def described(description: str, schema: Mapping[str, Any], patterns: Mapping[str, str]) -> str:
    """A field's description and, in brackets, what else its JSON schema asks for; choices, where the description does
    not name them all. schema: without references. patterns: regular expressions, and what they mean."""
    words = list(_bounds(schema, patterns))
    choices = [str(choice) for choice in schema.get("enum") or schema.get("items", {}).get("enum", ())]
    if any(choice.lower() not in description.lower() for choice in choices):
        words.insert(0, ", ".join(choices))
    return f"{description} ({'; '.join(words)})" if words else description


def _bounds(schema: Mapping[str, Any], patterns: Mapping[str, str]) -> Iterator[str]:
    """Of a number, a text or a list; of a union, those of its first member."""
    if "anyOf" in schema:
        yield from _bounds(schema["anyOf"][0], patterns)
    if limits := _range(schema):
        yield limits
    if pattern := schema.get("pattern"):
        yield patterns.get(pattern, f"as {pattern}")
    if least := schema.get("minItems"):
        yield f"at least {least}"


def _range(schema: Mapping[str, Any]) -> str:
    below, above = schema.get("exclusiveMaximum"), schema.get("exclusiveMinimum")
    least, most = schema.get("minimum"), schema.get("maximum")
    if schema.get("type") == "integer":  # those have a next one
        least, above = (above + 1, None) if above is not None else (least, None)
        most, below = (below - 1, None) if below is not None else (most, None)
    if least is not None and most is not None:
        return f"{_number(least)} to {_number(most)}"
    lower = (
        f"at least {_number(least)}" if least is not None else f"above {_number(above)}" if above is not None else ""
    )
    upper = f"at most {_number(most)}" if most is not None else f"below {_number(below)}" if below is not None else ""
    return ", ".join(part for part in (lower, upper) if part)


def _number(value: float) -> str:
    """Without a fraction that is none, and as a power of two where it is too long to read."""
    number = int(value) if value == int(value) else value
    if abs(number) < LARGEST_SPELLED:
        return str(number)
    power = abs(int(number)).bit_length()
    sign = "-" if number < 0 else ""
    if abs(number) == 1 << (power - 1):
        return f"{sign}2^{power - 1}"
    return f"{sign}2^{power} - 1" if abs(number) == (1 << power) - 1 else str(number)
