"""A user relies on: what the supervisor itself slept through is nobody's hang, a wait for data is told once, and a
group that hangs is told from one that gets on."""

import mmap
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stages.journal import Journal
from stages.pretrain.supervision import watch
from stages.pretrain.supervision.beats import OF_RANK, RECORD_BYTES, Phase
from stages.pretrain.supervision.groups import Group, Launcher, Running
from stages.pretrain.supervision.watch import Watch
from tests.stages.pretrain import micro

SECONDS = 10.0


class World:
    """Two groups of two ranks, which say what the test lets them say."""

    def __init__(self, folder: Path) -> None:
        config = micro.config(num_processes=4, collective_timeout_least_seconds=2)
        self.job = micro.worker_job(config, folder, folder / "run")
        self.now, self.lost = 100.0, 0
        self.events: list[dict[str, Any]] = []
        journal = Journal(folder / "events.jsonl", stage="pretrain", listeners=(self.events.append,))
        self.watch = Watch(self.job, journal, clock=lambda: self.now)
        groups = [
            Group(number=n, job=folder, log=folder, rendezvous=folder, size=2, first_slot=2 * n) for n in range(2)
        ]
        for group in groups:
            self.watch.begin(group)
        launcher = SimpleNamespace(
            pid=os.getpid(), running={g.number: Running(g) for g in groups}, lose=self._lose, each=lambda: [launcher]
        )
        self.launcher = cast(Launcher, launcher)
        descriptor = os.open(self.job.run.beats, os.O_RDWR)
        self._memory = mmap.mmap(descriptor, 4 * RECORD_BYTES)
        os.close(descriptor)
        self.changes = [0] * 4
        for slot in range(4):
            self.says(slot, Phase.STEP)

    def _lose(self) -> None:
        self.lost += 1

    def says(self, slot: int, phase: Phase, seconds: float = SECONDS, pid: int = os.getpid()) -> None:
        self.changes[slot] += 1
        OF_RANK.pack_into(self._memory, slot * RECORD_BYTES, pid, phase, 7, seconds, self.changes[slot], 0, 0)

    def look(self, seconds: float, *, poll: float = 0.5) -> set[int]:
        """Look again and again, for so long; the groups that were found to hang."""
        found: set[int] = set()
        for _ in range(int(seconds / poll)):
            self.now += poll
            found |= set(self.watch.look(self.launcher))
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_group_that_gets_no_further_is_found_and_the_other_one_is_not(world: World) -> None:
    assert world.look(8) == set()
    world.says(2, Phase.READING)
    world.says(3, Phase.READING)
    assert world.look(4) == {0}


def test_what_the_supervisor_slept_through_is_no_time(world: World) -> None:
    for _ in range(5):
        world.now += 3600
        assert world.watch.look(world.launcher) == {}
    assert world.look(7) == {0, 1}


def test_a_group_that_is_begun_again_has_all_its_time(world: World) -> None:
    world.look(8)
    world.watch.begin(world.launcher.running[0].group)
    assert not world.watch.has_begun(world.launcher.running[0].group)
    assert world.watch.has_begun(world.launcher.running[1].group)
    assert world.look(8) == {1}


def test_a_wait_for_data_is_told_once(world: World) -> None:
    world.says(1, Phase.READING, seconds=600)
    world.says(0, Phase.READING, seconds=600)
    world.says(0, Phase.STEP)  # it has its batch, and waits for the other one
    for slot in (2, 3):
        world.says(slot, Phase.SAVING, seconds=600)
    assert world.look(60) == set()
    (event,) = [event for event in world.events if event["kind"] == "data.stalled"]
    assert (event["rank"], event["step"]) == (1, 7) and 20 < event["seconds"] < 22


def test_a_launcher_that_is_stopped_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "state_of", lambda pid: "T")
    world.look(1.5)
    assert not world.lost
    world.look(1)
    assert world.lost


def test_a_launcher_that_is_stopped_while_a_rank_ends_is_ended_sooner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot tell of it."""
    monkeypatch.setattr(watch, "state_of", lambda pid: "Z" if pid == 7 else "T")
    world.says(3, Phase.STEP, pid=7)
    world.look(1)
    assert not world.lost
    world.look(0.5)
    assert world.lost
