"""What is done to the run of a seed: a pure function of the seed, so that whatever fails can be had again.

Of 20 seeds in a row 11 kill processes by a Poisson process, which is what goodput is judged on; of the others 2 stop
ranks (a hang), 2 fill the disk, 2 disturb the durable store, 1 the links, 1 the clock, and 1 asks the run to stop or
starts it twice; each with two kills among them, since a fault must be survived also where another one was. Which seed
has which family is shuffled.
"""

import random
from dataclasses import dataclass
from typing import Any

KILLS, HANG, DISK, STORE, LINK, CLOCK, ORDERLY = "kills", "hang", "disk", "store", "link", "clock", "orderly"
DECK = (KILLS,) * 11 + (HANG,) * 2 + (DISK,) * 2 + (STORE,) * 2 + (LINK, CLOCK, ORDERLY)

RANK, LAUNCHER, SUPERVISOR, EVERYTHING = "kill rank", "kill launcher", "kill supervisor", "kill everything"
STOP_RANK = "stop rank"
FULL_DISK = "full disk"
STORE_SLOW, STORE_BUSY, STORE_RESET = "store slow", "store 503", "store reset"
STORE_CUT, STORE_STALL = "store cut", "store stall"
STORE_KINDS = (STORE_SLOW, STORE_BUSY, STORE_RESET, STORE_CUT, STORE_STALL)
LOST = "lose machine"
TRAINED = "pretrain/"  # the artifact of the training, as an outcome names it
SLOW_LINK, CUT_LINK = "slow link", "cut link"
CLOCK_JUMP = "clock jump"
NOTICE, NOTICE_TO_ALL, RIVAL = "notice", "notice to all", "second supervisor"
KILL_WEIGHTS = {RANK: 6, LAUNCHER: 1, SUPERVISOR: 2, EVERYTHING: 1}
MEAN_GAP_SECONDS = 6.0
MOST_KILLS = 20


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`kind`, and when: so many seconds after the fault before it, or the first step, whatever goes on then; or, with a
    step, when that one has first begun and `part` of it has passed. `rank`: of a kind that has one. `lasts_seconds`: of
    a kind that does not pass by itself, at most. `jump_seconds`: of the clock."""

    kind: str
    gap_seconds: float = 0.0
    step: int | None = None
    part: float = 0.0
    rank: int = 0
    lasts_seconds: float = 0.0
    jump_seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The faults of one run, in their order."""

    seed: int
    family: str
    faults: tuple[Fault, ...]


def plan(seed: int, *, steps: int) -> Plan:
    """The plan of a seed, for a run of `steps` steps."""
    deck = list(DECK)
    random.Random(f"deck {seed // len(DECK)}").shuffle(deck)
    family = deck[seed % len(deck)]
    chance = random.Random(f"faults {seed}")
    return Plan(seed, family, tuple(_kills(chance) if family == KILLS else _mixed(chance, family, steps)))


def _kills(chance: random.Random) -> list[Fault]:
    """More than most runs live to see. One of a process that is not there just then does nothing."""
    kinds, weights = list(KILL_WEIGHTS), list(KILL_WEIGHTS.values())
    return [
        Fault(
            kind=chance.choices(kinds, weights)[0],
            gap_seconds=chance.expovariate(1 / MEAN_GAP_SECONDS),
            rank=chance.randrange(2),
        )
        for _ in range(MOST_KILLS)
    ]


def _mixed(chance: random.Random, family: str, steps: int) -> list[Fault]:
    """Four faults of a family and two kills, at steps of their own."""
    at = sorted(chance.sample(range(3, steps - 2), 6))
    killed = set(chance.sample(range(6), 2))
    faults = []
    for number, step in enumerate(at):
        when: dict[str, Any] = {"step": step, "part": chance.random(), "rank": chance.randrange(2)}
        if number in killed:
            faults.append(Fault(kind=chance.choice([RANK, RANK, SUPERVISOR]), **when))
        else:
            faults.append(_of_family(chance, family, when))
    return faults


def _of_family(chance: random.Random, family: str, when: dict[str, Any]) -> Fault:
    if family == HANG:
        return Fault(kind=STOP_RANK, **when)
    if family == DISK:
        return Fault(kind=FULL_DISK, lasts_seconds=30.0, **when)
    if family == STORE:
        return Fault(kind=chance.choice((*STORE_KINDS, LOST)), lasts_seconds=chance.uniform(1, 4), **when)
    if family == LINK:
        kind = chance.choice([SLOW_LINK, CUT_LINK])
        return Fault(kind=kind, lasts_seconds=chance.uniform(1, 3) if kind == SLOW_LINK else 30.0, **when)
    if family == ORDERLY:
        return Fault(kind=chance.choice([NOTICE, NOTICE_TO_ALL, RIVAL]), **when)
    return Fault(kind=CLOCK_JUMP, jump_seconds=chance.choice([-1, 1]) * 10 ** chance.uniform(0, 7), **when)
