"""What is started when, with a clock and processes that are made up."""

from collections.abc import Callable

import pytest

from flows.desk.processes.parts import Part
from flows.desk.processes.process import Process
from flows.desk.processes.restarts import HANG_SECONDS, MOST_DELAY_SECONDS, START_SECONDS, STEADY_SECONDS, Restarts

SERVER, WORKER = (Part(name=name, command=(name,), own={}) for name in ("server", "worker"))
ONCE = Part(name="provision", command=("provision",), own={}, once=True)


class Machine:
    """A world without processes: `dies` ends one, `time` goes on by `pass_time`."""

    def __init__(self) -> None:
        self.time = 0.0
        self.started: list[tuple[float, str]] = []
        self.alive: dict[int, str] = {}
        self.codes: dict[int, int] = {}
        self.healthy = True
        self.ready = {"server", "worker", "provision"}
        self.refuses = 0

    def now(self) -> float:
        return self.time

    def start(self, part: Part) -> Process:
        if self.refuses:
            self.refuses -= 1
            raise OSError(12, "Cannot allocate memory")
        self.started.append((self.time, part.name))
        pid = len(self.started)
        self.alive[pid] = part.name
        return Process(pid=pid, started=self.time, boot="")

    def is_alive(self, process: Process) -> bool:
        return process.pid in self.alive

    def exit_code(self, process: Process) -> int | None:
        return self.codes.get(process.pid)

    def kill(self, process: Process) -> None:
        del self.alive[process.pid]

    def server_is_healthy(self) -> bool:
        return self.healthy and "server" in self.alive.values()

    def may_start(self, part: Part) -> bool:
        return part.name in self.ready

    def dies(self, name: str, code: int = -9) -> None:
        pid = next(pid for pid, played in self.alive.items() if played == name)
        self.codes[pid] = code
        del self.alive[pid]

    def times(self, name: str) -> list[float]:
        return [time for time, started in self.started if started == name]


def pass_time(machine: Machine, restarts: Restarts, seconds: float, each: Callable[[], None] = lambda: None) -> None:
    end = machine.time + seconds
    while machine.time < end:
        restarts.tick()
        each()
        machine.time += 0.5


def ignore(text: str) -> None:
    pass


def test_what_is_there_is_left_alone() -> None:
    machine = Machine()
    restarts = Restarts([SERVER, WORKER], machine, ignore)
    pass_time(machine, restarts, 1000)
    assert machine.started == [(0.0, "server"), (0.0, "worker")]


def test_what_dies_again_and_again_is_started_later_each_time() -> None:
    machine = Machine()
    restarts = Restarts([WORKER], machine, ignore)
    pass_time(machine, restarts, 500, lambda: machine.dies("worker") if machine.alive else None)
    times = machine.times("worker")
    delays = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    tick = 0.5  # after which a death is noticed
    assert delays[:9] == [tick + delay for delay in (1, 2, 4, 8, 16, 32, *(3 * [MOST_DELAY_SECONDS]))]


def test_what_dies_for_days_is_still_started() -> None:
    machine = Machine()
    restarts = Restarts([WORKER], machine, ignore)
    restarts.tick()
    for _ in range(1500):
        machine.dies("worker")
        restarts.tick()
        machine.time += MOST_DELAY_SECONDS
        restarts.tick()
    assert len(machine.times("worker")) == 1501


def test_what_has_run_for_long_is_started_at_once() -> None:
    machine = Machine()
    restarts = Restarts([WORKER], machine, ignore)
    for _ in range(5):
        pass_time(machine, restarts, STEADY_SECONDS + 2)
        machine.dies("worker")
        died = machine.time
        pass_time(machine, restarts, 2)
        assert machine.times("worker")[-1] - died <= 1.5


def test_a_machine_without_memory_does_not_end_it() -> None:
    machine = Machine()
    machine.refuses = 3
    said: list[str] = []
    restarts = Restarts([SERVER], machine, said.append)
    pass_time(machine, restarts, 20)
    assert len(machine.times("server")) == 1
    assert sum("Cannot allocate memory" in text for text in said) == 3


def test_a_server_that_hangs_is_killed_and_one_that_is_busy_for_a_moment_is_not() -> None:
    machine = Machine()
    restarts = Restarts([SERVER], machine, ignore)
    pass_time(machine, restarts, 30)
    machine.healthy = False
    pass_time(machine, restarts, HANG_SECONDS - 10)
    machine.healthy = True
    pass_time(machine, restarts, 30)
    assert len(machine.times("server")) == 1
    machine.healthy = False
    pass_time(machine, restarts, HANG_SECONDS + 20)
    assert len(machine.times("server")) == 2


def test_a_server_that_takes_long_to_start_is_left_in_peace() -> None:
    machine = Machine()
    machine.healthy = False
    restarts = Restarts([SERVER], machine, ignore)
    pass_time(machine, restarts, START_SECONDS - 10)
    assert len(machine.times("server")) == 1
    pass_time(machine, restarts, 30)
    assert len(machine.times("server")) == 2


def test_a_worker_waits_for_its_pool() -> None:
    machine = Machine()
    machine.ready = {"server"}
    restarts = Restarts([SERVER, WORKER], machine, ignore)
    pass_time(machine, restarts, 30)
    assert not machine.times("worker")
    machine.ready.add("worker")
    pass_time(machine, restarts, 1)
    assert machine.times("worker")


@pytest.mark.parametrize(("code", "times"), [(0, 1), (2, 1), (1, 3)])
def test_what_runs_once_is_tried_again_only_where_that_may_help(code: int, times: int) -> None:
    machine = Machine()
    restarts = Restarts([ONCE], machine, ignore)
    pass_time(machine, restarts, 6, lambda: machine.dies("provision", code) if machine.alive else None)
    assert len(machine.started) == times


def test_an_adopted_process_is_not_started() -> None:
    machine = Machine()
    process = machine.start(WORKER)
    restarts = Restarts([WORKER], machine, ignore, {"worker": process})
    pass_time(machine, restarts, 10)
    assert len(machine.started) == 1
    machine.dies("worker")
    pass_time(machine, restarts, 10)
    assert len(machine.started) == 2


def test_what_has_run_for_long_counts_as_well_whatever_was_before() -> None:
    """Whoever looks at it then hears of no failures, and is told of the change."""
    machine = Machine()
    restarts = Restarts([SERVER, WORKER], machine, ignore)
    for name in ("server", "worker"):
        pass_time(machine, restarts, 2)
        machine.dies(name)
    pass_time(machine, restarts, 10)
    assert restarts.failures == {"server": 1, "worker": 1}
    changed: list[bool] = []
    until = machine.time + STEADY_SECONDS
    while machine.time < until:
        changed.append(restarts.tick())
        machine.time += 0.5
    assert restarts.failures == {"server": 0, "worker": 0} and any(changed)


def test_a_server_that_never_serves_ends_more_and_more_often() -> None:
    machine = Machine()
    machine.healthy = False
    restarts = Restarts([SERVER], machine, ignore)
    pass_time(machine, restarts, 3.2 * START_SECONDS)
    assert restarts.failures == {"server": 3}, "that it lived for minutes says nothing"
