"""A spread of the lines of a record: that of a training may have millions, and a chart has a thousand dots."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.journal import parsed

MOST_LINES = 2000
WHOLE_BYTES = 4_000_000
LAST_BYTES = 1 << 16


def sampled(path: Path, most: int = MOST_LINES) -> Iterator[dict[str, Any]]:
    """Lines of a .jsonl file in their order: all of a short one, else `most` from places evenly spread, the last one
    among them. None if it is not there."""
    try:
        length = path.stat().st_size
        with open(path, "rb") as file:
            if length <= WHOLE_BYTES:
                yield from parsed(file)
                return
            end = 0
            for number in range(most):
                place = length * number // most
                if place < end:
                    continue
                file.seek(place)
                if place:
                    file.readline()  # the rest of the line before
                line = file.readline()
                end = file.tell()
                yield from parsed([line])
            file.seek(max(end, length - LAST_BYTES))
            yield from list(parsed(file.readlines()))[-1:]
    except FileNotFoundError:
        return
