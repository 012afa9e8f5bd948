"""What a user relies on: the goodput of runs that are as good as can be is the optimum, and that of others is less."""

import random

import pytest

from stages.pretrain.checkpoints.cadence import best_interval
from tests.chaos import plan
from tests.chaos.figures import figures, harm
from tests.chaos.outcome import Happened, Outcome

STEP, SAVE, RESTART, RATE = 0.01, 0.05, 1.5, 1 / 8
SECONDS = 4000.0


def simulated(interval: float, *, seed: int) -> Outcome:
    """A run whose steps take no time to speak of, killed by a Poisson process."""
    chance = random.Random(seed)
    outcome = Outcome(seed, plan.KILLS, starts=[0.0], first_step_at=1.0)
    now, kill = 1.0, 1.0 + chance.expovariate(RATE)
    kept = pending = 0
    while now < SECONDS:
        if now + STEP + SAVE < kill:
            now, pending = now + STEP, pending + 1
            if pending * STEP >= interval:
                now, kept, pending = now + SAVE, kept + pending, 0
                outcome.saves.append({"blocked_seconds": SAVE, "seconds": SAVE})
            continue
        outcome.happened.append(Happened(plan.RANK, kill, 1, kill, False))
        now, kill = kill + RESTART, kill + chance.expovariate(RATE)
        while now > kill:
            outcome.happened.append(Happened(plan.RANK, kill, 1, kill, True))
            now, kill = kill + RESTART, kill + chance.expovariate(RATE)
        outcome.happened[-1].resumed_at = now
        pending = 0
    outcome.last_step_at = now
    outcome.step_seconds = [STEP] * kept
    return outcome


def test_the_share_of_the_optimum_is_one_at_the_best_interval_and_less_elsewhere() -> None:
    best = best_interval(save=SAVE, failures_per_second=RATE)
    reference = Outcome(-1, "undisturbed")

    def share(interval: float) -> float:
        runs = [simulated(interval, seed=seed) for seed in range(8)]
        return figures(runs, reference)["goodput_share_of_optimum"]

    assert share(best) == pytest.approx(1, abs=0.02)
    assert share(best / 6) < 0.85 and share(8 * best) < 0.85


def test_what_is_missing_or_else_is_counted() -> None:
    reference = Outcome(-1, "undisturbed", digests={"checkpoint/10": "a", "pretrain/": "b"})
    same = Outcome(0, plan.HANG, digests=dict(reference.digests))
    other = Outcome(1, plan.DISK, digests={"checkpoint/10": "c"}, samples_lost=2, orphans=1, leftovers=["runs/x.tmp"])
    assert not any(harm([same], reference).values())
    assert harm([same, other], reference) == {
        "digest_mismatches": 2,
        "samples_lost": 2,
        "samples_doubled": 0,
        "orphans": 1,
        "stale_leases": 0,
        "leftovers": 1,
        "unexpected_ends": 0,
    }


def test_a_fault_counts_as_noticed_when_its_own_incident_was_recorded() -> None:
    happened = [
        Happened(plan.RANK, 10.0, 5, 1010.0, False, 13.0),
        Happened(plan.STOP_RANK, 20.0, 9, 1020.0, False, 25.0),
    ]
    incidents = [{"noticed": 10.5}, {"noticed": 21.0}, {"noticed": 22.0}]
    outcome = Outcome(0, plan.HANG, happened=happened, incidents=incidents, step_seconds=[0.2] * 3)
    found = figures([outcome], Outcome(-1, "undisturbed"))
    assert found["dead_rank_noticed_seconds"]["median"] == pytest.approx(0.5)
    assert found["hang_noticed_steps"]["high"] == pytest.approx(5)
    assert found["kill_to_first_step_seconds"][plan.RANK]["count"] == 1
