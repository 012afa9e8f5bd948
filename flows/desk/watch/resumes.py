"""Whether and when a run that crashed is scheduled again by itself, decided from the history of its states.

Only a crash is: a failure has a cause that another try meets again, and a cancellation was somebody's will. The run
goes on from what the store holds. So many times in a row at most; a run that worked for an hour between two crashes
has got on, and the count begins anew. Runs that ended with the desk go on with it, and are not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

STOPPED = "the desk was stopped"
RESUMED = "resumed by itself"
RETRY = "AwaitingRetry"  # the state of a run that was scheduled again, by whomever
DELAYS_SECONDS = (10.0, 60.0, 300.0, 900.0)  # the last one for all that follow
PROGRESS_SECONDS = 3600.0
TOO_OLD_SECONDS = 86400.0  # nobody waits for it any more, and a desk may be started after a year


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A state that a run entered. type, name: as Prefect says them. time: Unix seconds."""

    type: str
    name: str
    message: str
    time: float


@dataclass(frozen=True, kw_only=True)
class Resume:
    """A run is to be scheduled for `time` (Unix seconds), for the `number`-th time in a row; 0 is not counted.
    reason: what the crash said."""

    time: float
    number: int
    reason: str


def resume_of(history: Sequence[Moment], now: float, most: int) -> Resume | None:
    """What becomes of a run with these states, oldest first; None: it stays as it is."""
    if not history or history[-1].type != "CRASHED" or most == 0:
        return None
    crash, attempt = history[-1], _last_attempt(history)
    if any(moment.type == "CANCELLING" for moment in attempt):
        return None
    # A run that is told to leave says itself how it was ended, after the desk has said why.
    if any(moment.type == "CRASHED" and moment.message.startswith(STOPPED) for moment in attempt):
        return Resume(time=now, number=0, reason=STOPPED)
    number = in_a_row(history) + 1
    if number > most or now - crash.time > TOO_OLD_SECONDS:
        return None
    delay = DELAYS_SECONDS[min(number, len(DELAYS_SECONDS)) - 1]
    return Resume(time=max(now, crash.time + delay), number=number, reason=crash.message)


def in_a_row(history: Sequence[Moment]) -> int:
    """How often a run has been resumed since it last got on, or since somebody else scheduled it."""
    count, ended = 0, history[-1].time
    for moment in reversed(history):
        if moment.type == "RUNNING" and ended - moment.time >= PROGRESS_SECONDS:
            break
        if moment.type == "CRASHED":
            ended = moment.time
        if moment.name == RETRY:
            if not moment.message.startswith(RESUMED):
                break
            count += moment.message.startswith(f"{RESUMED},")
    return count


def message_of(resume: Resume, most: int) -> str:
    """What the state says into which a run is resumed; `in_a_row` reads it."""
    counted = f", {resume.number} of {most}" if resume.number else ""
    return f"{RESUMED}{counted}: {resume.reason}"


def _last_attempt(history: Sequence[Moment]) -> Sequence[Moment]:
    """The states since a run was last scheduled."""
    last = max((at for at, moment in enumerate(history) if moment.type == "SCHEDULED"), default=0)
    return history[last:]
