import json
from pathlib import Path

import torch

from stages.pretrain.parallel.ranks import Ranks
from stages.pretrain.parallel.timeouts import FIRST_STEPS, LATEST_STEPS, Timeouts
from stages.pretrain.supervision.attempt import environment
from tests.stages.pretrain import micro
from tests.stages.pretrain.forked import start_ranks
from tests.stages.pretrain.parallel import waiting


def made() -> Timeouts:
    config = micro.config(
        collective_timeout_seconds=100, collective_timeout_ratio=4, collective_timeout_least_seconds=10
    )
    return Timeouts(config, Ranks(0, 1, torch.device("cpu")), [])


def holds(timeouts: Timeouts, kind: object = "usual") -> float:
    """In a step on a batch of this kind."""
    timeouts.begin(kind)
    return timeouts.seconds


def test_the_long_time_holds_until_the_first_steps_are_measured() -> None:
    timeouts = made()
    for seconds in [*[20] * FIRST_STEPS, 5]:
        assert holds(timeouts) == 100
        timeouts.took(seconds, "usual")
    assert holds(timeouts) == 20, "the first steps counted as normal ones"


def test_it_is_a_multiple_of_the_slowest_of_the_latest_steps_within_its_bounds() -> None:
    timeouts = made()
    for _ in range(FIRST_STEPS):
        timeouts.took(0, "usual")
    found = []
    for seconds in (1, 5, 3, 30):
        timeouts.took(seconds, "usual")
        found.append(holds(timeouts))
    assert found == [10, 20, 20, 100]
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
    assert holds(timeouts, "large") == 80


def test_the_long_time_holds_again_around_what_takes_longer_than_a_step() -> None:
    timeouts = made()
    with timeouts.relaxed():
        assert timeouts.seconds == 100
    assert timeouts.seconds == 100, "nothing is measured yet"
    for _ in range(FIRST_STEPS + 1):
        timeouts.took(5, "usual")
    assert holds(timeouts) == 20
    with timeouts.relaxed():
        assert timeouts.seconds == 100
    assert timeouts.seconds == 20


def test_a_slow_rank_ends_nothing_and_a_hung_one_ends_the_others_in_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    variables = environment(micro.config(num_processes=2))
    processes = start_ranks(waiting.main, str(tmp_path / "store"), size=2, log=log, variables=variables)
    try:
        processes[0].join(120)
        assert processes[0].exitcode == 0, log.read_text()
    finally:
        for process in processes:
            process.kill()
            process.join()
    seen = json.loads(log.read_text().splitlines()[-1])
    assert seen["survived"] == ["slow", "relaxed"]
    assert seen["group_seconds"] == waiting.START_SECONDS, "a group of a mesh began with the time of its backend"
    assert waiting.LEAST_SECONDS <= seen["waited"] < waiting.START_SECONDS / 2, "the timeout of the start still held"
