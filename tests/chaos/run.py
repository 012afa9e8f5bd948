"""Carries one plan through: starts the run, does to it what the plan says, starts it again where its supervisor has
gone, and looks at what is left when it is done.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from stages.errors import OK, TRY_AGAIN
from stages.pretrain.faults import ALLOWED
from stages.pretrain.job import read_lines
from stages.store import Store
from tests.chaos import hook, plan
from tests.chaos.family import Family, left_over, members, send
from tests.chaos.ledger import Ledger
from tests.chaos.outcome import Happened, Outcome
from tests.chaos.plan import Fault, Plan
from tests.chaos.surroundings import Surroundings, possible

REPOSITORY = Path(__file__).parents[2]
POLL_SECONDS = 0.01
LIMIT_SECONDS = 400.0
MOST_STARTS = 30
MEETS_SECONDS = 30.0  # in which a run has to meet a fault of its surroundings
SETTLED_STEPS = 6  # of a process, after which its steps count as normal and a hang is told by them
# Ends that a fault may bring about, beside those by a signal of the harness's own.
EXPECTED_ENDS = {plan.FULL_DISK: {TRY_AGAIN}}


class Ended(Exception):
    """The supervisor has left by itself. `code`: how."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class Run:
    """One run in `folder`, which holds all of it: store/, ledger/, output.txt."""

    def __init__(self, made: Plan, folder: Path, *, steps: int, step_seconds: float) -> None:
        self.outcome = Outcome(made.seed, made.family)
        self.store = Store(folder / "store")
        self._folder = folder
        (folder / "ledger").mkdir()
        self.store.root.mkdir()
        self.ledger = Ledger(folder / "ledger")
        self._settings: dict[str, Any] = {"num_steps": steps}
        self._steps = steps
        self._step_seconds = step_seconds
        self._faults = [fault for fault in made.faults if possible(fault.kind)]
        self._surroundings = Surroundings(folder, [fault.kind for fault in self._faults])
        self._process: subprocess.Popen[bytes] | None = None
        self._until = time.monotonic() + LIMIT_SECONDS
        self._pending: list[Happened] = []

    def carry_through(self) -> Outcome:
        """To the end of the training, whatever happens on the way; what went wrong stands in the outcome."""
        began = time.monotonic()
        outcome = self.outcome
        with self._surroundings:
            self._settings |= self._surroundings.settings
            try:
                self._disturb()
                self._finish()
            except TimeoutError as error:
                self._wrong(str(error))
            finally:
                if self._process is not None and self._process.poll() is None:
                    send(members(self._folder), signal.SIGKILL)
                    self._process.wait()
            self._look_for_orphans()
            outcome.judge(self.store, self.ledger, steps=self._steps)
        outcome.seconds = time.monotonic() - began
        return outcome

    def _disturb(self) -> None:
        """Do what the plan says, until it is done or the training is."""
        self._start()
        last = None
        for fault in self._faults:
            is_done = False
            while not is_done:
                try:
                    self._wait_for(fault, last)
                    is_done = True
                    self._do(fault)
                except Ended as end:
                    if not self._may_go_on(end.code):
                        return
            last = time.monotonic()

    def _finish(self) -> None:
        while True:
            try:
                self._watch(lambda: False)
            except Ended as end:
                if not self._may_go_on(end.code):
                    return

    def _start(self) -> None:
        assert len(self.outcome.starts) < MOST_STARTS, "started again and again"
        self.outcome.starts.append(time.monotonic())
        self._process = self._launched()

    def _launched(self) -> subprocess.Popen[bytes]:
        """The command, in a session of its own."""
        variables = {
            hook.FOLDER: str(self._folder),
            hook.STEP_SECONDS: str(self._step_seconds),
            ALLOWED: "1",
            "OMP_NUM_THREADS": "1",
            **self._surroundings.variables,
        }
        command = [sys.executable, "-m", "tests.chaos.training", str(self.store.root), json.dumps(self._settings)]
        with open(self._folder / "output.txt", "ab") as output:
            return subprocess.Popen(
                [*self._surroundings.wrapper, *command],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **variables},
                start_new_session=True,
            )

    def _watch(self, until: Any) -> None:
        """Until `until()` holds. Raises Ended if the supervisor ends before, TimeoutError if that takes too long."""
        assert self._process is not None
        while not until():
            code = self._process.poll()
            self.ledger.poll()
            for happened in list(self._pending):
                happened.resumed_at = self.ledger.began_after(max(happened.at, self.outcome.starts[-1]))
                if happened.resumed_at is not None:
                    self._pending.remove(happened)
            if code is not None:
                raise Ended(code)
            if time.monotonic() > self._until:
                raise TimeoutError(f"the run has not ended after {LIMIT_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    def _wait_for(self, fault: Fault, last: float | None) -> None:
        """Until the moment of a fault, of which the one before was at `last`."""
        if fault.step is None:
            self._watch(lambda: last is not None or self.ledger.step > 0)
            moment = (last or time.monotonic()) + fault.gap_seconds
        else:
            step = fault.step
            settled = SETTLED_STEPS if fault.kind in (plan.STOP_RANK, plan.CUT_LINK) else 0
            self._watch(lambda: not self._pending and self.ledger.step >= step and self.ledger.age >= settled)
            moment = time.monotonic() + fault.part * self._step_seconds
        self._watch(lambda: time.monotonic() >= moment)

    def _do(self, fault: Fault) -> None:
        assert self._process is not None
        if psutil.Process(self._process.pid).status() == psutil.STATUS_ZOMBIE:
            return  # it has just ended
        family = Family.of(self._process.pid)
        kind = fault.kind
        if kind in (plan.RANK, plan.STOP_RANK) and len(family.ranks) <= fault.rank:
            return  # there is none, of a training that is just starting
        if kind == plan.LAUNCHER and family.launcher is None:
            return
        done = Happened(kind, time.monotonic(), self.ledger.step, time.time(), not family.ranks)
        self.outcome.happened.append(done)
        self._pending = [done]
        if kind == plan.RANK:
            send([family.ranks[fault.rank]], signal.SIGKILL)
        elif kind == plan.STOP_RANK:
            send([family.ranks[fault.rank]], signal.SIGSTOP)
        elif kind == plan.LAUNCHER and family.launcher is not None:
            send([family.launcher], signal.SIGKILL)
        elif kind == plan.SUPERVISOR:
            self._process.kill()
            self._restart()
        elif kind == plan.EVERYTHING:
            send(members(self._folder), signal.SIGKILL)
            self._restart()
        elif kind in (plan.NOTICE, plan.NOTICE_TO_ALL):
            send([family.supervisor] if kind == plan.NOTICE else members(self._folder), signal.SIGTERM)
            self._leave()
        elif kind == plan.RIVAL:
            self._pending = []
            code = self._launched().wait(LIMIT_SECONDS)
            if code != TRY_AGAIN and self._process.poll() is None:
                self._wrong(f"a second command for one run ended with {code}")
        elif kind == plan.LOST:
            send(members(self._folder), signal.SIGKILL)
            self._process.wait()
            for path in (self.store.root / "runs", self.store.artifacts_path / "checkpoint"):
                shutil.rmtree(path, ignore_errors=True)
            self._restart()
        else:
            self._pending = []
            self._last(fault, done)

    def _last(self, fault: Fault, done: Happened) -> None:
        """A fault of the surroundings, until the run has met it and for as long as it lasts; a link that is cut until
        that has ended an attempt. One that the run did not meet has not happened."""
        assert self._process is not None
        is_met = False
        with self._surroundings.disturbed(fault, self._process.pid):
            before = self._num_incidents()
            until = time.monotonic() + MEETS_SECONDS

            def is_over() -> bool:
                nonlocal is_met, until
                if not is_met and self._surroundings.is_hit(fault):
                    is_met = True
                    done.at, done.wall = time.monotonic(), time.time()
                    until = done.at + fault.lasts_seconds
                is_cut = fault.kind == plan.CUT_LINK and self._num_incidents() > before
                return is_cut or time.monotonic() >= until

            ended = False
            try:
                self._watch(is_over)
            except Ended as end:
                if end.code not in EXPECTED_ENDS.get(fault.kind, set()):
                    raise
                ended = True
            finally:
                if not is_met:
                    self.outcome.happened.remove(done)
            if ended or self._num_incidents() > before:
                self._pending = [done]
        if ended:
            self._look_for_orphans()
            self._start()

    def _num_incidents(self) -> int:
        return sum(len(read_lines(path)) for path in (self.store.root / "runs").glob("*/incidents.jsonl"))

    def _leave(self) -> None:
        """Wait for the supervisor to leave as it was asked to, and go on with the same command."""
        try:
            self._watch(lambda: False)
        except Ended as end:
            if end.code != TRY_AGAIN:
                raise
            self._look_for_orphans()
            self._start()

    def _restart(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._look_for_orphans()
        self._start()

    def _wrong(self, what: str) -> None:
        self.outcome.unexpected_ends += 1
        self.outcome.problems.append(f"{what}\n{self._output()}")

    def _may_go_on(self, code: int) -> bool:
        """After an end: whether there is still something to do, which the same command then does."""
        if code == OK:
            return False
        self._wrong(f"the command ended with {code}")
        self._look_for_orphans()
        if len(self.outcome.starts) >= MOST_STARTS or self.outcome.unexpected_ends > 3:
            raise TimeoutError("it does not come to its end")
        self._start()
        return True

    def _look_for_orphans(self) -> None:
        found = left_over(self._folder)
        self.outcome.orphans += len(found)
        self.outcome.problems += found

    def _output(self) -> str:
        return (self._folder / "output.txt").read_text(errors="replace")[-3000:]
