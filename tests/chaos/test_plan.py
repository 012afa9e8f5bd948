"""What a user relies on: a seed stands for the same faults every time, and the seeds together for all kinds."""

from collections import Counter

from tests.chaos import plan as kinds
from tests.chaos.plan import DECK, plan

STEPS = 100


def test_seeds_have_all_families_in_their_proportions() -> None:
    for first in (0, 20, 40):
        assert Counter(plan(seed, steps=STEPS).family for seed in range(first, first + 20)) == Counter(DECK)
    assert [plan(seed, steps=STEPS).family for seed in range(20)] != [
        plan(seed, steps=STEPS).family for seed in range(20, 40)
    ]


def test_a_plan_follows_from_its_seed() -> None:
    plans = [plan(seed, steps=STEPS) for seed in range(40)]
    assert plans == [plan(seed, steps=STEPS) for seed in range(40)]
    assert len({made.faults for made in plans}) == 40


def test_every_kind_of_fault_comes_up() -> None:
    faults = [fault for seed in range(400) for fault in plan(seed, steps=STEPS).faults]
    wanted = {*kinds.KILL_WEIGHTS, kinds.STOP_RANK, kinds.FULL_DISK, kinds.SLOW_LINK, kinds.CUT_LINK, kinds.CLOCK_JUMP}
    assert {fault.kind for fault in faults} == wanted | {
        *kinds.STORE_KINDS,
        kinds.LOST,
        kinds.NOTICE,
        kinds.NOTICE_TO_ALL,
        kinds.RIVAL,
    }
    assert all(fault.step is None or 3 <= fault.step <= STEPS - 3 for fault in faults)
    gaps = [fault.gap_seconds for fault in faults if fault.step is None]
    assert abs(sum(gaps) / len(gaps) / kinds.MEAN_GAP_SECONDS - 1) < 0.15
