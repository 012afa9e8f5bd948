"""A user relies on: a rank is taken for hung by what its own steps take, and what takes longer has the long time."""

from pathlib import Path
from typing import Any, cast

from stages.pretrain.parallel.timeouts import FIRST_STEPS, LATEST_STEPS, Timeouts
from stages.pretrain.supervision.beats import Phase
from tests.stages.pretrain import micro
from tests.stages.pretrain.forked import run_ranks
from tests.stages.pretrain.parallel import group_times


class Told:
    """In the place of a `Heart`."""

    def __init__(self) -> None:
        self.beats: list[tuple[Phase, int, float]] = []

    def beat(self, phase: Phase, step: int, seconds: float) -> None:
        self.beats.append((phase, step, seconds))


def made(told: Told | None = None) -> Timeouts:
    config = micro.config(
        collective_timeout_seconds=100, collective_timeout_ratio=4, collective_timeout_least_seconds=10
    )
    return Timeouts(config, cast(Any, told))


def holds(timeouts: Timeouts, kind: object = "usual") -> float:
    """In a step on a batch of this kind."""
    timeouts.begin(kind, step=1)
    return timeouts.seconds


def test_the_long_time_holds_until_the_first_steps_are_measured() -> None:
    timeouts = made()
    for seconds in [*[20] * FIRST_STEPS, 5]:
        assert holds(timeouts) == 100
        timeouts.took(seconds, "usual")
    assert holds(timeouts) == 20, "the first steps counted as normal ones"


def test_it_is_a_multiple_of_a_normal_step_or_twice_the_slowest_within_its_bounds() -> None:
    timeouts = made()
    for _ in range(FIRST_STEPS):
        timeouts.took(0, "usual")
    found = []
    for seconds in (1, 5, 3, 30):
        timeouts.took(seconds, "usual")
        found.append(holds(timeouts))
    assert found == [10, 12, 12, 60]
    for _ in range(LATEST_STEPS):
        timeouts.took(4, "usual")
    timeouts.took(60, "usual")
    assert holds(timeouts) == 100
    for _ in range(LATEST_STEPS):
        timeouts.took(4, "usual")
    assert holds(timeouts) == 16, "a slow step is never forgotten"


def test_the_long_time_holds_again_for_the_first_steps_on_larger_batches() -> None:
    timeouts = made()
    for _ in range(FIRST_STEPS + 1):
        timeouts.took(4, "small")
    for _ in range(FIRST_STEPS + 1):
        assert (holds(timeouts, "large"), holds(timeouts, "small")) == (100, 16)
        timeouts.took(20, "large")
    assert holds(timeouts, "large") == 48, "large batches are as normal as small ones"


def test_the_supervisor_is_told_of_each_phase_and_how_long_it_may_last() -> None:
    """Waiting for data, checkpoints and held-out measurements have the long time, also in the middle of a step."""
    told = Told()
    timeouts = made(told)
    for _ in range(FIRST_STEPS + 1):
        timeouts.took(5, "usual")
    timeouts.reading(8)
    timeouts.begin("usual", step=8)
    with timeouts.relaxed(Phase.HELDOUT):
        assert timeouts.seconds == 100
    with timeouts.relaxed():
        pass
    assert told.beats == [
        (Phase.READING, 8, 100),
        (Phase.STEP, 8, 20),
        (Phase.HELDOUT, 8, 100),
        (Phase.STEP, 8, 20),
        (Phase.SAVING, 8, 100),
        (Phase.STEP, 8, 20),
    ]


def test_no_group_of_ranks_gives_up_earlier_than_the_long_time(tmp_path: Path) -> None:
    """Groups of a mesh begin with a time of their backend's."""
    run_ranks(group_times.main, size=2, log=tmp_path / "log")
