"""How attempts end, and the moments and durations of which a run's account is made."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from stages.errors import BAD_INPUT, OK, TRY_AGAIN
from stages.pretrain.supervision.supervise import HARDWARE, HUNG, LEFT, OUT_OF_MEMORY, ROLL_BACK, Request


class Kind(StrEnum):
    """How an attempt ended; GROUP: it did not, one of its replica groups did."""

    DONE = "done"
    KILL = "kill"
    CRASH = "crash"
    HANG = "hang"
    NOT_FINITE = "not finite"
    HARDWARE = "hardware"
    MEMORY = "memory"
    FULL = "disk full"
    INPUT = "input"
    REQUEST = "request"
    RESIZE = "resize"
    SUPERVISOR = "supervisor"
    GROUP = "group"


IN_ORDER = (Kind.DONE, Kind.REQUEST, Kind.RESIZE)


def kind_of(exit_code: int, requested: Request = Request.NONE) -> Kind:
    """The kind of an attempt's end. exit_code: negative for the signal that killed a process. requested: what its ranks
    had been asked to leave for."""
    if requested is Request.STOP and exit_code != OK:
        return Kind.REQUEST
    known = {
        OK: Kind.DONE,
        BAD_INPUT: Kind.INPUT,
        ROLL_BACK: Kind.NOT_FINITE,
        HARDWARE: Kind.HARDWARE,
        OUT_OF_MEMORY: Kind.MEMORY,
        TRY_AGAIN: Kind.FULL,
        LEFT: Kind.RESIZE,
        HUNG: Kind.HANG,
    }
    return Kind.KILL if exit_code < 0 else known.get(exit_code, Kind.CRASH)


class Stamp(BaseModel):
    """A moment: seconds of the wall clock, and of the monotonic clock of one boot."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: float
    clock: float
    boot: str

    def until(self, later: "Stamp") -> float:
        """Seconds to a later moment; 0 where the wall clock, all there is between two boots, says that it came
        before."""
        if self.boot and self.boot == later.boot:
            return max(0.0, later.clock - self.clock)
        return max(0.0, later.time - self.time)

    def after(self, seconds: float) -> "Stamp":
        """The moment so many seconds later."""
        return Stamp(time=self.time + seconds, clock=self.clock + seconds, boot=self.boot)


class Sums(BaseModel):
    """Of the timing lines of several steps, in seconds that do not overlap. computing: without waiting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = 0
    computing: float = 0.0
    waiting: float = 0.0
    checkpoints: float = 0.0
    heldout: float = 0.0

    @property
    def total(self) -> float:
        return self.computing + self.waiting + self.checkpoints + self.heldout

    def plus(self, other: "Sums") -> Self:
        return self.model_validate(
            {name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields}
        )

    def times(self, factor: float) -> Self:
        """The same steps in a share of the seconds."""
        names = [name for name in type(self).model_fields if name != "steps"]
        return self.model_copy(update={name: getattr(self, name) * factor for name in names})


def sums(lines: Iterable[Mapping[str, Any]]) -> Sums:
    """Of timing lines: `seconds` of a step, in which the wait for data lies, and beside them what checkpoints and
    held-out losses took before it was finished."""
    found = {name: 0.0 for name in Sums.model_fields}
    for line in lines:
        waiting = min(line["data_wait_seconds"], line["seconds"])
        found["steps"] += 1
        found["computing"] += line["seconds"] - waiting
        found["waiting"] += waiting
        found["checkpoints"] += line.get("checkpoint_seconds", 0.0)
        found["heldout"] += line.get("heldout_seconds", 0.0)
    return Sums.model_validate(found)
