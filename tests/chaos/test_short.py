"""What a user relies on: a training that is killed, hung, slowed, starved of disk and set to other clocks ends with
the bits of one that was left alone. `make chaos` does the same at length.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos import plan
from tests.chaos.figures import harm
from tests.chaos.outcome import Outcome
from tests.chaos.plan import Fault, Plan
from tests.chaos.run import Run
from tests.chaos.surroundings import possible

STEPS = 60
FAULTS = (
    Fault(kind=plan.RANK, step=4, part=0.5),
    Fault(kind=plan.STOP_RANK, step=8, rank=1),
    Fault(kind=plan.CLOCK_JUMP, step=15, jump_seconds=1e6),
    Fault(kind=plan.SUPERVISOR, step=17),
    Fault(kind=plan.SLOW_LINK, step=20, lasts_seconds=0.5),
    Fault(kind=plan.RANK, step=23, part=0.3),
    Fault(kind=plan.CLOCK_JUMP, step=26, jump_seconds=-3e6),
    Fault(kind=plan.RANK, step=29, rank=1),
    Fault(kind=plan.FULL_DISK, step=32, lasts_seconds=30.0),
    Fault(kind=plan.RANK, step=38, part=0.8),
)


def carried_through(folder: Path, made: Plan, step_seconds: float) -> Outcome:
    folder.mkdir()
    return Run(made, folder, steps=STEPS, step_seconds=step_seconds).carry_through()


@pytest.mark.slow
def test_ten_faults_do_no_harm(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        left_alone = pool.submit(carried_through, tmp_path / "alone", Plan(-1, "undisturbed", ()), 0.0)
        disturbed = pool.submit(carried_through, tmp_path / "disturbed", Plan(0, "short", FAULTS), 0.05)
        reference, outcome = left_alone.result(), disturbed.result()
    assert [happened.kind for happened in outcome.happened] == [
        fault.kind for fault in FAULTS if possible(fault.kind)
    ], outcome.problems
    assert not any(harm([outcome, reference], reference).values()), (outcome.problems, outcome.leftovers)
    assert {"pretrain/", "checkpoint/20", "checkpoint/60"} <= reference.digests.keys()
