"""A user relies on: beside a training, an evaluation takes no more of its pace than was set, and comes to its end."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from data.errors import InputError
from stages.evaluate.beside import LEAST_SHARE, Account, Governor, Steps, governor, running_trainings, take_place
from stages.evaluate.config import EvaluateConfig
from stages.journal import Journal
from stages.pretrain.job import RunDirectory
from stages.store import Store


@dataclass
class Machine:
    """A machine with a clock of its own, on which a training makes steps of `step_seconds`, slowed by `slowdown` while
    a batch of the evaluation runs."""

    run: RunDirectory
    step_seconds: float
    slowdown: float
    now: float = 0.0
    progress: float = 0.0
    began: float = 0.0
    steps: int = 0
    busy: float = 0.0
    lines: list[str] = field(default_factory=list)

    def pass_time(self, seconds: float, pace: float) -> None:
        """The training goes on at `pace` of its own."""
        end = self.now + seconds
        while (left := (1 - self.progress) * self.step_seconds / pace) <= end - self.now + 1e-12:
            self.now += left
            self.steps += 1
            with open(self.run.timing, "a") as file:
                print(json.dumps({"step": self.steps, "seconds": self.now - self.began}), file=file)
            self.began, self.progress = self.now, 0.0
        self.progress += (end - self.now) * pace / self.step_seconds
        self.now = end

    def sleep(self, seconds: float) -> None:
        self.pass_time(seconds, 1.0)

    def batch(self, seconds: float) -> None:
        self.busy += seconds
        self.pass_time(seconds, 1 / (1 + self.slowdown))


def machine(
    folder: Path, step_seconds: float, slowdown: float, history: int = 32, most: float = 0.1
) -> tuple[Machine, Governor]:
    made = Machine(RunDirectory(folder), step_seconds, slowdown)
    made.run.timing.touch()
    made.pass_time(history * step_seconds, 1.0)
    trainings: Mapping[str, RunDirectory] = {"training": made.run}
    return made, Governor(lambda: trainings, most_slowdown=most, clock=lambda: made.now, sleep=made.sleep)


def evaluate(made: Machine, governs: Governor, batches: int, batch_seconds: float) -> tuple[float, float]:
    """(what the training lost as a share of what its steps take alone, share of the time in which batches ran)."""
    began, steps = made.now, made.steps + made.progress
    for _ in range(batches):
        governs()
        made.batch(batch_seconds)
    taken = made.now - began
    return taken / ((made.steps + made.progress - steps) * made.step_seconds) - 1, made.busy / taken


@pytest.mark.parametrize(
    ("step_seconds", "slowdown", "history"), [(0.05, 0.3, 32), (0.3, 1.0, 0), (8.0, 1.0, 0), (8.0, 0.3, 32)]
)
def test_the_training_keeps_its_share(tmp_path: Path, step_seconds: float, slowdown: float, history: int) -> None:
    made, governs = machine(tmp_path, step_seconds, slowdown, history)
    lost, _ = evaluate(made, governs, batches=200, batch_seconds=0.5)
    assert 0.05 < lost < 0.12
    assert governs.slowdown == pytest.approx(lost, abs=0.03)
    ungoverned, _ = machine(tmp_path, step_seconds, slowdown, history)
    assert evaluate(ungoverned, lambda: None, batches=200, batch_seconds=0.5)[0] == pytest.approx(slowdown, abs=0.05)  # type: ignore[arg-type]


def test_a_training_that_loses_nothing_is_hardly_waited_for(tmp_path: Path) -> None:
    made, governs = machine(tmp_path, 0.1, 0.0)
    lost, share = evaluate(made, governs, batches=200, batch_seconds=0.5)
    assert abs(lost) < 0.01 and share > 0.95


def test_the_evaluation_comes_to_its_end_however_little_it_may_take(tmp_path: Path) -> None:
    made, governs = machine(tmp_path, 0.1, 1.0, most=1e-6)
    _, share = evaluate(made, governs, batches=100, batch_seconds=0.5)
    assert 0.8 * LEAST_SHARE < share < 2 * LEAST_SHARE


def test_a_training_that_hangs_or_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    made, governs = machine(tmp_path, 0.1, 1.0)
    evaluate(made, governs, batches=40, batch_seconds=0.5)
    running: dict[str, RunDirectory] = {}
    clock = made.now
    ended = Governor(lambda: running, most_slowdown=0.1, clock=lambda: clock, sleep=lambda seconds: pytest.fail())
    ended()
    made.step_seconds = 1e9
    _, share = evaluate(made, governs, batches=100, batch_seconds=0.5)
    assert share > 0.8 * LEAST_SHARE


def test_a_step_that_saved_a_checkpoint_is_not_laid_at_its_door() -> None:
    account = Account(0.1, [0.1] * 16)
    account.add([0.1] * 100 + [30.0], beside=True)
    assert not account.is_over


def test_torn_and_restarted_files_are_read_on(tmp_path: Path) -> None:
    path = tmp_path / "timing.jsonl"
    assert Steps(path).new() == []
    path.write_text('{"step": 1, "seconds": 1.0}\n{"step": 2, "seconds": 2.0}\n{"step": 3, "sec')
    steps = Steps(path)
    with open(path, "a") as file:
        file.write('onds": 3.0}\n')
    assert steps.new() == [3.0]
    path.write_text('{"step": 1, "seconds": 1.0}\n')
    assert steps.new() == []
    with open(path, "a") as file:
        file.write('{"step": 2, "seconds": 2.5}\n')
    assert steps.new() == [2.5]


def test_only_a_training_whose_process_lives_is_watched(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert running_trainings(store) == {}
    with store.lease("pretrain", "0123456789ab"):
        assert running_trainings(store) == {"0123456789ab": RunDirectory(store.runs_path("0123456789ab"))}
    assert running_trainings(store) == {}
    governor(EvaluateConfig(), store)()


def test_an_evaluation_in_the_queue_begins_when_the_training_is_done(tmp_path: Path) -> None:
    store, slept = Store(tmp_path), []
    journal = Journal(tmp_path / "events.jsonl", stage="evaluate")
    lease = store.lease("pretrain", "0123456789ab")
    lease.acquire()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            lease.release()

    take_place(EvaluateConfig(beside="queue"), store, journal, sleep)
    assert len(slept) == 3 and "0123456789ab" in (tmp_path / "events.jsonl").read_text()
    take_place(EvaluateConfig(beside="share"), store, journal, sleep)
    assert len(slept) == 3


def test_it_is_kept_on_the_cpus_that_were_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "events.jsonl", stage="evaluate")
    before = os.sched_getaffinity(0)
    try:
        take_place(EvaluateConfig(cpus=(min(before),)), Store(tmp_path), journal)
        assert os.sched_getaffinity(0) == {min(before)}
        with pytest.raises(InputError, match="evaluate.cpus"):
            take_place(EvaluateConfig(cpus=(100_000,)), Store(tmp_path), journal)
    finally:
        os.sched_setaffinity(0, before)
