"""Batches that a run leaves out, since a step on them was not finite, twice.

runs/<key>/excluded.json holds them in the order in which they were decided on. A draw is the number of a batch before
any is left out (see `data.order.batches`); a step behind an excluded draw takes the next one, so the number of steps
stays. The phases of a recipe's schedules are phases of draws: each batch that is left out before a phase brings it one
step forward.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from data.errors import InputError
from stages.files import write_json

Draws = tuple[tuple[int, int], ...]


class Exclusion(BaseModel):
    """The draws [first, last), and the step, counted from 1, that was not finite on them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: int = Field(ge=0)
    last: int
    step: int = Field(ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.last <= self.first:
            raise ValueError(f"last = {self.last} must be above first = {self.first}")
        return self


def read_exclusions(path: Path) -> tuple[Exclusion, ...]:
    """Those of the file; none if there is no file. Raises InputError if it does not hold ranges that are disjoint."""
    if not path.exists():
        return ()
    try:
        found = TypeAdapter(tuple[Exclusion, ...]).validate_json(path.read_bytes())
        for (_, end), (first, last) in pairwise(draws(found)):
            if first < end:
                raise ValueError(f"the draws {first} to {last - 1} are left out twice")
    except ValueError as error:
        raise InputError(
            f"{path} does not say which batches are left out ({error}); mend it: the journal's events of the kind "
            "`excluded` name first, last and step of each, in this order"
        ) from error
    return found


def write_exclusions(path: Path, exclusions: Sequence[Exclusion]) -> None:
    """Put them into the file, all or none."""
    write_json(path, [exclusion.model_dump() for exclusion in exclusions])


def draws(exclusions: Sequence[Exclusion]) -> Draws:
    """The ranges of draws, ascending and disjoint, as a `SampleOrder` takes them."""
    return tuple(sorted((exclusion.first, exclusion.last) for exclusion in exclusions))


def before(excluded: Draws, draw: int) -> Draws:
    """Those of the ranges that stand before a draw that was taken: what a state after it depends on."""
    return excluded[: bisect_right([first for first, _ in excluded], draw)]
