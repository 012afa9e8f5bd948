"""What to do when an attempt ends: a pure function of how it ended and of how earlier attempts did.

| how it ended                       | decision                                                                        |
|------------------------------------|---------------------------------------------------------------------------------|
| 0   the last step is done          | done                                                                            |
| 2   the user's input               | stop, exit code 2                                                               |
|     asked to stop, however it left | stop, exit code 75: the same command goes on from there                         |
| 76  left, asked to by a change of  | relaunch on what there is now                                                   |
|     capacity                       |                                                                                 |
| 70  loss or gradient is not finite | roll back to a healthy checkpoint and replay; if it comes back, leave the batch |
|                                    | out; if it comes back on another batch, stop                                    |
| 71  hardware suspected             | relaunch without that process, if the run may be smaller; else stop: the same   |
|                                    | machine would go on computing wrongly                                           |
| 72  out of memory                  | stop, exit code 2: the same settings need as much again; but relaunch if there  |
|                                    | is a newer checkpoint than at the last such end, so that they did suffice       |
| 75  not possible now (disk full)   | stop, exit code 75                                                              |
| 124 a hang, found by the           | as a crash                                                                      |
|     supervisor                     |                                                                                 |
| anything else: a crash, a killed   | relaunch from the newest checkpoint, unless it gets no further: at once for the |
| process                            | first time, then after 1, 2, 4, ... seconds while no new checkpoint comes       |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from stages.errors import BAD_INPUT, FAILED, OK, TRY_AGAIN

ROLL_BACK = 70
HARDWARE = 71
OUT_OF_MEMORY = 72
LEFT = 76
HUNG = 124
MOST_DELAY_SECONDS = 60.0
# Where several processes failed, the first of these says most about why; the others often just lost their peer.
TELLING = (BAD_INPUT, ROLL_BACK, HARDWARE, OUT_OF_MEMORY, TRY_AGAIN)


class Request(StrEnum):
    """What the ranks were asked to leave for, if they were."""

    NONE = ""
    STOP = "stop"
    RESIZE = "resize"


class Action(StrEnum):
    """What the supervisor does next."""

    DONE = "done"
    RELAUNCH = "relaunch"
    ROLL_BACK = "roll back"
    EXCLUDE = "exclude"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How an attempt ended. `exit_code`: negative for a signal from outside that killed a process; `step`: the last
    step that was completed; `checkpoint_step`: the newest complete checkpoint, 0 if there is none; `draw`: the batch
    that was not finite, None where it was something else; `rank`: the one that says so, if one did; `requested`: what
    the ranks had been asked to leave for; `noticed_at`: when the first sign of the end was seen, by `time.monotonic`;
    `silent_seconds`: for which nothing had moved then."""

    exit_code: int
    cause: str
    step: int
    checkpoint_step: int
    draw: int | None = None
    rank: int | None = None
    requested: Request = Request.NONE
    noticed_at: float | None = None
    silent_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Decision:
    """`exit_code`: the supervisor's own, if it stops; `delay_seconds`: before the next attempt; `without`: the rank
    whose place is to be left empty from here on."""

    action: Action
    reason: str
    exit_code: int = OK
    delay_seconds: float = 0.0
    without: int | None = None


def decide(
    ending: Ending,
    history: Sequence[Ending],
    *,
    max_relaunches: int,
    max_exclusions: int,
    excluded_steps: Sequence[int] = (),
    may_shrink: bool = False,
) -> Decision:
    """The decision after `ending`; `history` holds the endings before it, oldest first, and `excluded_steps` the steps,
    counted from 1, a batch of which has been left out so far. may_shrink: the run may go on with a process less."""
    if ending.exit_code == OK:
        return Decision(action=Action.DONE, reason="finished")
    if ending.exit_code == BAD_INPUT:
        return Decision(action=Action.STOP, reason=ending.cause, exit_code=BAD_INPUT)
    if ending.requested is Request.STOP:
        return _stopped(ending)
    if ending.exit_code == TRY_AGAIN:
        return Decision(action=Action.STOP, reason=ending.cause, exit_code=TRY_AGAIN)
    if ending.exit_code == HARDWARE:
        return _suspect(ending, may_shrink)
    if ending.exit_code == OUT_OF_MEMORY:
        return _without_memory(ending, history)
    if ending.exit_code == LEFT and ending.requested is Request.RESIZE:
        return Decision(action=Action.RELAUNCH, reason=ending.cause)
    if ending.exit_code == ROLL_BACK:
        return _after_anomaly(ending, history, max_relaunches, max_exclusions, excluded_steps)
    return _after_crash(ending, history, max_relaunches)


def _stopped(ending: Ending) -> Decision:
    at = f"after step {ending.checkpoint_step}" if ending.checkpoint_step else "before the first checkpoint"
    lost = ending.step - ending.checkpoint_step
    late = f" (the {lost} steps since then are lost: {ending.cause})" if lost > 0 else ""
    reason = f"stopped on request {at}{late}; the same command goes on from there"
    return Decision(action=Action.STOP, reason=reason, exit_code=TRY_AGAIN)


def _suspect(ending: Ending, may_shrink: bool) -> Decision:
    what = f"hardware suspected: {ending.cause}"
    if not may_shrink or ending.rank is None:
        return _give_up(what)
    return Decision(action=Action.RELAUNCH, reason=f"{what}; going on without its process", without=ending.rank)


def _without_memory(ending: Ending, history: Sequence[Ending]) -> Decision:
    """Memory that fragments, or that something else held for a while, is there again for new processes."""
    earlier = [past.checkpoint_step for past in history if past.exit_code == OUT_OF_MEMORY]
    if ending.checkpoint_step > max(earlier, default=0):
        return Decision(action=Action.RELAUNCH, reason=ending.cause)
    return Decision(action=Action.STOP, reason=ending.cause, exit_code=BAD_INPUT)


def _after_anomaly(
    ending: Ending,
    history: Sequence[Ending],
    max_relaunches: int,
    max_exclusions: int,
    excluded_steps: Sequence[int],
) -> Decision:
    if ending.step + 1 in excluded_steps and ending.draw is not None:
        return _give_up(
            f"{ending.cause}; it came back at the same step with other data, so it is not the data: lower "
            "pretrain.learning_rate or raise pretrain.warmup_ratio"
        )
    earlier = [past for past in history if past.exit_code == ROLL_BACK]
    if any((past.step, past.draw) == (ending.step, ending.draw) for past in earlier):
        again = f"{ending.cause}; it came back when the same data was replayed, so it is not a transient fault"
        if ending.draw is None:
            return _give_up(f"{again}: lower pretrain.learning_rate")
        if len(excluded_steps) >= max_exclusions:
            left_out = (
                f"{len(excluded_steps)} batches are left out already" if excluded_steps else "no batch may be left out"
            )
            return _give_up(
                f"{again}, and {left_out} (pretrain.max_exclusions = {max_exclusions}): raise pretrain.max_exclusions "
                "to leave this one out too, or lower pretrain.learning_rate"
            )
        return Decision(action=Action.EXCLUDE, reason=f"{again}; its batch will be left out")
    # A replay of its own comes before each exclusion, so only those count that no exclusion followed.
    in_vain = [past for past in earlier if past.step + 1 not in excluded_steps]
    if len(in_vain) >= max_relaunches:
        return _give_up(f"{ending.cause}; {len(in_vain)} rollbacks already")
    return Decision(action=Action.ROLL_BACK, reason=ending.cause)


def _give_up(reason: str) -> Decision:
    return Decision(action=Action.STOP, reason=reason, exit_code=FAILED)


def _after_crash(ending: Ending, history: Sequence[Ending], max_relaunches: int) -> Decision:
    """A run of weeks may crash often, so only crashes in a row count that no new checkpoint stands between."""
    in_vain = 0
    for past in reversed(history):
        if past.checkpoint_step != ending.checkpoint_step:
            break
        in_vain += not (past.exit_code == LEFT and past.requested is Request.RESIZE)
    if in_vain >= max_relaunches:
        return _give_up(
            f"{ending.cause}; {in_vain} relaunches from step {ending.checkpoint_step} have not got to a new checkpoint"
        )
    delay = min(2.0 ** (in_vain - 1), MOST_DELAY_SECONDS) if in_vain else 0.0
    return Decision(action=Action.RELAUNCH, reason=ending.cause, delay_seconds=delay)
