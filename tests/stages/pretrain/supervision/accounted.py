"""A simulated run that keeps its own account of its time, for that of the supervisor to be held against."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages.journal import Journal
from stages.pretrain.job import RunDirectory
from stages.pretrain.monitor.records import cut_back
from stages.pretrain.supervision.account import Account
from stages.pretrain.supervision.moments import Kind, Stamp
from stages.pretrain.supervision.spent import Spent

STEP, WAIT, BLOCKED, HELDOUT, START, UNDER_WAY = 1.0, 0.125, 0.25, 2.0, 5.0, 0.5


class Killed(Exception):
    pass


class World:
    """A run with its clocks. Whatever lets time pass says what for; a kill may come at each point of `life`."""

    def __init__(self, folder: Path) -> None:
        self.run = RunDirectory(folder)
        self.events: list[dict[str, Any]] = []
        self.journal = Journal(folder / "events.jsonl", stage="pretrain", listeners=(self.events.append,))
        self.time, self.clock, self.boot = 1.7e9, 1000.0, "first"
        self.truth: dict[str, float] = {}
        self.kept: dict[int, float] = {}
        self.checkpoint = 0
        self.points = 0
        self.dies_at: int | None = None

    def now(self) -> Stamp:
        return Stamp(time=self.time, clock=self.clock, boot=self.boot)

    def passes(self, seconds: float, cause: str) -> None:
        self.time += seconds
        self.clock += seconds
        self.truth[cause] = self.truth.get(cause, 0.0) + seconds

    def point(self) -> None:
        self.points += 1
        if self.points == self.dies_at:
            raise Killed

    def account(self) -> Account:
        return Account(self.run, self.journal, now=self.now)

    def begun(self, *, num_processes: int = 1) -> Account:
        """That of a supervisor which has just begun the first attempt."""
        account = self.account()
        account.resuming(0)
        account.began(num_processes=num_processes)
        self.passes(START, "starting")
        return account

    def go_back(self, kind: Kind) -> None:
        """Steps after the checkpoint will be made again."""
        for step in [step for step in self.kept if step > self.checkpoint]:
            seconds = self.kept.pop(step)
            self.truth["productive"] -= seconds
            self.truth[f"replayed: {kind}"] = self.truth.get(f"replayed: {kind}", 0.0) + seconds

    def step(self, step: int, *, save: bool) -> None:
        """One that waits for data and, if a checkpoint was made before it, stood still for that."""
        line = {"step": step, "seconds": STEP + WAIT, "data_wait_seconds": WAIT}
        if save:
            self.passes(BLOCKED, "checkpoints")
            self.passes(HELDOUT, "heldout")
            line |= {"checkpoint_seconds": BLOCKED, "heldout_seconds": HELDOUT}
        self.passes(WAIT, "data")
        self.passes(STEP, "productive")
        self.kept[step] = STEP
        with open(self.run.timing, "a") as file:
            file.write(json.dumps(line) + "\n")
        self.run.metrics.write_text(self.run.timing.read_text())

    def life(self, *ends: tuple[Kind, int]) -> Iterator[Account]:
        """One supervisor: attempts that end so after that many steps, the last one DONE."""
        account = self.account()
        self.point()
        self.passes(0.75, "starting")
        for kind, num_steps in ends:
            account.resuming(self.checkpoint)
            self.point()
            cut_back(self.run, self.checkpoint)
            self.point()
            account.began(num_processes=2)
            self.point()
            self.passes(START, "starting")
            account.poll()
            self.point()
            for step in range(self.checkpoint + 1, self.checkpoint + num_steps + 1):
                self.step(step, save=step % 3 == 1 and step > 1)
                account.poll()
                self.point()
                if step % 3 == 0:
                    self.checkpoint = step
            at = "finishing" if kind in (Kind.DONE, Kind.REQUEST) else f"replayed: {kind}"
            self.passes(UNDER_WAY, "hang" if kind is Kind.HANG else at if num_steps else "starting")
            account.poll()
            account.ended(
                kind, cause=f"a {kind}", step=max(self.kept, default=0), decision="relaunch", delay_seconds=2.0
            )
            if kind in (Kind.DONE, Kind.REQUEST):
                self.checkpoint = max(self.kept)
            self.go_back(kind)
            self.point()
            if kind is not Kind.DONE:
                self.passes(2.0, "back-off")
                account.poll()
                self.passes(0.25, "starting")
                account.poll()
                self.point()
        account.closed()
        yield account


def lived(world: World, *ends: tuple[Kind, int]) -> None:
    for _ in world.life(*ends):
        pass


def check(world: World, found: Spent) -> None:
    assert sum(found.seconds.values()) == pytest.approx(found.wall_seconds, abs=1e-9)
    for cause in {*found.seconds, *world.truth}:
        assert found.seconds.get(cause, 0.0) == pytest.approx(world.truth.get(cause, 0.0), abs=1e-9), cause
