"""Batches that a run leaves out, since a step on them was not finite, twice.

runs/<key>/excluded.json holds them in the order in which they were decided on. A draw is the number of a batch before
any is left out (see `data.order`); a step behind an excluded draw takes the next one, so the number of steps stays.
"""

import json
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from stages.files import write_json

Draws = tuple[tuple[int, int], ...]


class Exclusion(BaseModel):
    """The draws [first, last), and the step, counted from 1, that was not finite on them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: int
    last: int
    step: int


def read_exclusions(path: Path) -> tuple[Exclusion, ...]:
    """Those of the file; none if there is no file."""
    if not path.exists():
        return ()
    return tuple(Exclusion.model_validate(entry) for entry in json.loads(path.read_text(encoding="utf-8")))


def write_exclusions(path: Path, exclusions: Sequence[Exclusion]) -> None:
    """Put them into the file, all or none."""
    write_json(path, [exclusion.model_dump() for exclusion in exclusions])


def draws(exclusions: Sequence[Exclusion]) -> Draws:
    """The ranges of draws, ascending and disjoint, as a `SampleOrder` takes them."""
    return tuple(sorted((exclusion.first, exclusion.last) for exclusion in exclusions))


def before(excluded: Draws, draw: int) -> Draws:
    """Those of the ranges that stand before a draw that was taken: what a state after it depends on."""
    return excluded[: bisect_right([first for first, _ in excluded], draw)]
