"""Carries one case of the kill matrix through: a training is started from its deployment, disturbed, and followed until
it is complete; then what is left is looked at.
"""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil

from tests.orchestration import families
from tests.orchestration.api import FINAL, Object, wait_for
from tests.orchestration.desk import Desk
from tests.orchestration.result import Result
from tests.orchestration.trainings import DISTURBED_STEP, Training, Writers, wall_seconds

ENDS_SECONDS = 600.0  # from the fault to a final state of the run
RESUMES_SECONDS = 240.0  # from there until something schedules it again
STAYS = 60.0  # seconds in a final state that the case does not expect
DONE_SECONDS = 900.0
ORPHAN_SECONDS = 30.0
NEXT_SECONDS = 400.0


@dataclass
class Disturbed:
    """A training that is well under way, its run, and the processes of that. `others`: runs of the same training that
    the case has started beside it."""

    desk: Desk
    training: Training
    run: str
    family: Sequence[psutil.Process]
    others: list[str] = field(default_factory=list)


def nothing(disturbed: Disturbed) -> list[str]:
    """Where a case has nothing to look at but what every case has."""
    return []


@dataclass(frozen=True, kw_only=True)
class Case:
    """disturb: what is done; state: the type of that in which the run then ends, before it is resumed; look: what is
    wrong then, by the case's own measure; leaves_seconds: in which all processes of the run have to be gone."""

    name: str
    disturb: Callable[[Disturbed], None]
    state: str
    look: Callable[[Disturbed], list[str]] = nothing
    leaves_seconds: float = ENDS_SECONDS


class Trial:
    """One case on `desk`, which is up."""

    def __init__(self, case: Case, desk: Desk, training: Training, expected: dict[str, str]) -> None:
        self.case, self.desk, self.training, self.expected = case, desk, training, expected
        self.result = Result(case.name)

    def carry_through(self) -> Result:
        """To the end of the training, whatever happens; what went wrong stands in the result."""
        began = time.monotonic()
        try:
            with Writers(self.desk) as writers:
                self._follow()
            self.result.writers = writers.most
            self._judge()
        except Exception:
            self._wrong(traceback.format_exc(limit=-4))
        self.result.seconds = time.monotonic() - began
        return self.result

    def _follow(self) -> None:
        """Start the training, disturb it, and see it complete."""
        result, api = self.result, self.desk.api
        run = self.training.start()
        self.training.reach(DISTURBED_STEP, lambda: self._ended(run))
        family = families.of_run(run)
        self._at, self._wall = time.monotonic(), time.time()
        disturbed = Disturbed(self.desk, self.training, run, family)
        self.case.disturb(disturbed)
        state = self._final_state(run)
        result.state, result.name, result.message = state["type"], state["name"], state["message"] or ""
        result.state_seconds = wall_seconds(state["timestamp"]) - self._wall
        if state["type"] != self.case.state:
            self._wrong(f"the run is {state['name']}: {state['message']}")
        left = families.gone(family, ORPHAN_SECONDS)
        result.gone_seconds = time.monotonic() - self._at
        if result.gone_seconds > self.case.leaves_seconds:
            self._wrong(f"its processes were there for {result.gone_seconds:.0f} s")
        result.orphans += len(left)
        result.problems += [f"outlived its run: {families.command(process)}" for process in left]
        result.checkpoint_step = self.training.last_checkpoint()
        for problem in self.case.look(disturbed):
            self._wrong(problem)
        if state["type"] != "COMPLETED":
            run = self._resumed(run, disturbed)
        state = api.wait(run, seconds=DONE_SECONDS)["state"]
        while state["type"] == "CRASHED" and self._is_resumed(run):
            state = api.wait(run, seconds=DONE_SECONDS)["state"]
        if state["type"] != "COMPLETED":
            self._wrong(f"in the end the run is {state['name']}: {state['message']}")
        result.complete_seconds = wall_seconds(state["timestamp"]) - self._wall
        self.runs = {run, disturbed.run, *disturbed.others}

    def _ended(self, run: str) -> str:
        """Why a run that is to be disturbed has ended before; empty while it works."""
        state = self.desk.api.run(run)["state"]
        return f"{state['name']}: {state['message']}" if state["type"] in FINAL else ""

    def _final_state(self, run: str) -> Object:
        """That in which the case ends by its own account, also where the run has been resumed since; or another one, if
        the run stays in it."""
        found: list[Object] = []

        def is_there() -> bool:
            states = [s for s in self.desk.api.states(run) if wall_seconds(s["timestamp"]) >= self._wall - 1]
            found[:] = [s for s in states if s["type"] in FINAL]
            if any(s["type"] == self.case.state for s in found):
                return True
            return (
                bool(found) and states[-1] is found[-1] and time.time() - wall_seconds(found[-1]["timestamp"]) > STAYS
            )

        wait_for(is_there, ENDS_SECONDS, lambda: f"{run} is still {self.desk.api.run(run)['state']}")
        wanted = [state for state in found if state["type"] == self.case.state] or found[-1:]
        for state in found[: found.index(wanted[0])]:
            self._wrong(f"the run was {state['name']} on its way: {state['message']}")
        return wanted[0]

    def _resumed(self, run: str, disturbed: Disturbed) -> str:
        """The run that goes on with the training: this one, by the desk itself or as a user's retry, or another one."""
        if disturbed.others:
            self.result.goes_on_by = "the next run"
            return disturbed.others[0]
        if self.result.state == "CRASHED" and self._is_resumed(run):
            self.result.goes_on_by = "itself"
            return run
        if self.result.state == "CRASHED":
            self._wrong("the desk has not resumed the run by itself")
        self.result.goes_on_by = "retry"
        answer = self.desk.api.retry(run)
        if answer != "ACCEPT":
            self._wrong(f"a retry is answered by {answer}")
        return run

    def _is_resumed(self, run: str) -> bool:
        """Whether something schedules the run again in time."""
        try:
            wait_for(lambda: self.desk.api.state(run) != "CRASHED", RESUMES_SECONDS, "")
        except TimeoutError:
            return False
        return True

    def _judge(self) -> None:
        """Of what is left when all is done."""
        result, training = self.result, self.training
        found = training.digests()
        result.digests_equal = found == self.expected
        if not result.digests_equal:
            names = sorted({name for name, _ in found.items() ^ self.expected.items()})
            self._wrong(f"artifacts are missing, new or different: {names}")
        self._next_run_starts()
        result.leases = len(training.leases())
        result.problems += [f"left over: {path}" for path in [*training.leases(), *training.leftovers()]]
        if result.writers > 1:
            self._wrong(f"{result.writers} trainings wrote at once")
        for run in self.runs:
            left = families.gone(families.of_run(run), ORPHAN_SECONDS)
            result.orphans += len(left)
            result.problems += [f"outlived all: {families.command(process)}" for process in left]
        result.problems += shape(self.desk)

    def _next_run_starts(self) -> None:
        """The slot of the queue is free: the next run begins, finds all made, and completes."""
        began = time.time()
        run = self.training.start()
        state = self.desk.api.wait(run, seconds=NEXT_SECONDS)["state"]
        if state["type"] != "COMPLETED":
            self._wrong(f"the next run is {state['name']}: {state['message']}")
        (running, *_) = [s for s in self.desk.api.states(run) if s["type"] == "RUNNING"]
        self.result.next_seconds = wall_seconds(running["timestamp"]) - began

    def _wrong(self, what: str) -> None:
        self.result.problems.append(what)


def shape(desk: Desk) -> list[str]:
    """What is wrong with the processes of a desk that is up: it has one of each."""
    kinds = {
        "keeper": desk.keepers(),
        "server": desk.servers(),
        "worker": desk.workers(),
        "watch": desk.watches(),
    }
    return [f"the desk has {len(found)} processes as {kind}" for kind, found in kinds.items() if len(found) != 1]
