"""A stage's artifact as a small table: what went in, what came out, what that took, and the facts that say most."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.report.rendering import count, figure, seconds, size
from stages.store import Artifact

MOST_FACTS, MOST_OF_A_TABLE, MOST_INPUTS, MOST_CHARACTERS = 24, 6, 8, 160
Row = dict[str, str]


def stage_rows(artifact: Artifact) -> list[Row]:
    """Rows of {about, what, value}; numbers are rounded, and of many entries the first are shown."""
    return [*_cost(artifact), *_inputs(artifact), *_facts(artifact)]


def _cost(artifact: Artifact) -> Iterator[Row]:
    made = artifact.manifest
    yield _row("made", "artifact", artifact.path.name)
    yield _row("made", "size", f"{size(sum(entry.bytes for entry in made.files))} in {count(len(made.files))} files")
    yield _row("took", "time", seconds(made.provenance.get("seconds")))
    yield _row("took", "CPU", seconds(made.provenance.get("cpu_seconds")))
    if (attempts := made.provenance.get("attempts", 1)) > 1:
        yield _row("took", "attempts", count(attempts))


def _inputs(artifact: Artifact) -> Iterator[Row]:
    for name, entries in artifact.manifest.inputs.items():
        for entry in entries[:MOST_INPUTS]:
            yield _row("went in", name, f"{entry.stage} {entry.key}")
        if len(entries) > MOST_INPUTS:
            yield _row("went in", name, f"and {len(entries) - MOST_INPUTS} more")


def _facts(artifact: Artifact) -> list[Row]:
    """Single values, and tables of a few: facts first, as they are the same every time."""
    rows = [
        _row(about, name, text)
        for about, facts in (("fact", artifact.facts), ("measured", artifact.manifest.measurements))
        for name, text in _values(facts)
    ]
    return rows[:MOST_FACTS]


def _values(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, int | float) and name.endswith(("_seconds", "_bytes")):
            yield (name[:-8], _seconds(value)) if name.endswith("_seconds") else (name[:-6], size(value))
        elif isinstance(value, Mapping):
            values = {key: told for key, each in value.items() if (told := _told(each))}
            if values and len(values) <= MOST_OF_A_TABLE:
                yield name, ", ".join(f"{key} {told}" for key, told in values.items())
        elif told := _told(value):
            yield name, told


def _seconds(value: float) -> str:
    return f"{figure(value)} s" if value < 1 else seconds(value)


def _told(value: Any) -> str:
    """A single value, or a short list of such; empty for what needs a page of its own."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, int):
        return count(value)
    if isinstance(value, str):
        return value if len(value) <= MOST_CHARACTERS else ""
    if isinstance(value, Sequence) and value and len(value) <= MOST_OF_A_TABLE:
        told = [_told(each) for each in value if not isinstance(each, Sequence | Mapping) or isinstance(each, str)]
        return ", ".join(told) if len(told) == len(value) else ""
    return ""


def _row(about: str, what: str, value: str) -> Row:
    return {"about": about, "what": what.replace("_", " "), "value": value}
