"""Whether ranks of a world hang, and which one: a pure function of what they have said of themselves.

A rank that waits for another is not at fault, so that one is judged which has got least far: if it has been in its
phase for longer than the phase may last, the world hangs. A process that is stopped (SIGSTOP, a debugger) is told from
one that runs and gets nowhere.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.pretrain.supervision.beats import Beat, Phase

# Of the time that a phase may last: earlier than the operations between ranks give up by themselves, which would look
# like a crash of a healthy rank; and early enough for five normal steps also where the supervisor has just looked.
HUNG_AT = 0.75
STALLED_SECONDS = 20.0
SILENT_SECONDS = 3.0
ENDED = "Z"  # state of a process whose parent has not asked how it ended
STOPPED = ("T", "t")  # states of a process, by a signal or by a debugger


@dataclass(frozen=True, kw_only=True)
class Sign:
    """What is known of one rank now. unchanged_seconds: since its phase changed; silent_seconds: since it was last
    alive; state: of its process, as /proc/<pid>/stat has it, "" if unknown."""

    rank: int
    beat: Beat
    unchanged_seconds: float
    silent_seconds: float
    state: str = ""

    @property
    def is_stopped(self) -> bool:
        return self.state in STOPPED

    @property
    def is_overdue(self) -> bool:
        return self.unchanged_seconds > HUNG_AT * self.beat.seconds


@dataclass(frozen=True)
class Hang:
    """rank: the one at fault, None where all wait for one another. why: for a person."""

    rank: int | None
    phase: Phase
    step: int
    unchanged_seconds: float
    why: str


def hung(signs: Sequence[Sign], *, stopped_seconds: float) -> Hang | None:
    """The hang of a world whose ranks are `signs`; None while it gets on. stopped_seconds: that a process may be
    stopped, in whatever phase. Ranks that have not begun are left out by the caller."""
    for sign in signs:
        limit = min(HUNG_AT * sign.beat.seconds, stopped_seconds)
        if sign.is_stopped and sign.unchanged_seconds > limit:
            return _hang(sign, f"rank {sign.rank} is stopped (state {sign.state})")
    least = min((sign.beat.changes for sign in signs), default=0)
    behind = [sign for sign in signs if sign.beat.changes == least]
    if not behind or not all(sign.is_overdue for sign in behind):
        return None
    silent = [sign for sign in behind if sign.silent_seconds > SILENT_SECONDS]
    if silent:
        return _hang(silent[0], f"rank {silent[0].rank} gives no sign of life")
    if len(behind) == len(signs) > 1:
        return _hang(behind[0], "all ranks wait for one another", nobody=True)
    who = ", ".join(str(sign.rank) for sign in behind)
    return _hang(behind[0], f"rank {who} is alive and gets no further" if len(signs) > 1 else "it gets no further")


def _hang(sign: Sign, what: str, *, nobody: bool = False) -> Hang:
    phase, step = sign.beat.phase, sign.beat.step
    of_step = f" of step {step}" if step else ""
    why = f"{what}: for {sign.unchanged_seconds:.1f} s in phase {phase.name.lower()}{of_step}"
    return Hang(None if nobody else sign.rank, phase, step, sign.unchanged_seconds, why)


def stalled(signs: Sequence[Sign]) -> list[Sign]:
    """The ranks that have waited long for data."""
    return [s for s in signs if s.beat.phase is Phase.READING and s.unchanged_seconds > STALLED_SECONDS]


def last_collective(stacks: Path, rank: int) -> str:
    """The last operation between ranks that a rank has written down, in a few words; "" if it has not."""
    try:
        entries = json.loads((stacks / f"rank-{rank}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    if not entries:
        return ""
    last = entries[-1]
    return f"{last.get('profiling_name', '?')} {last.get('input_sizes', '')} ({last.get('state', '?')})"
