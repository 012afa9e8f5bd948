import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelerate.tracking import GeneralTracker, register_tracker_class

from data.errors import InputError
from stages.journal import Journal
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.monitor import trackers as module
from stages.pretrain.monitor.records import Records
from stages.pretrain.monitor.tail import MetricsTail
from stages.pretrain.monitor.trackers import Trackers, scalars
from tests.stages.pretrain import micro

SETTINGS = {"num_steps": 4, "model": {"hidden_size": 24}, "compile": True, "head": None}


class Notes(GeneralTracker):
    """Keeps in memory what it is given; fails at the step `fails_at`, and waits for `may_go` at each."""

    name = "notes"
    requires_logging_directory = False
    main_process_only = False
    seen: list[tuple[int, dict[str, float]]] = []
    settings: list[dict[str, Any]] = []
    fails_at = 0
    may_go = threading.Event()

    def __init__(self, run_name: str) -> None:
        super().__init__()

    @property
    def tracker(self) -> None:
        return None

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.settings.append(values)

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        assert step is not None
        if step == self.fails_at:
            raise ConnectionError("no network")
        self.may_go.wait(30)
        self.seen.append((step, values))


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> type[Notes]:
    if "notes" not in module_names():
        register_tracker_class(Notes)
    for name, value in {"seen": [], "settings": [], "fails_at": 0, "may_go": threading.Event()}.items():
        monkeypatch.setattr(Notes, name, value)
    Notes.may_go.set()
    return Notes


def module_names() -> set[str]:
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    return {str(name) for name in LOGGER_TYPE_TO_CLASS}


def wait_until(happened: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.01)


def send(names: tuple[str, ...], run: RunDirectory, first: int, last: int, *, loss: float = 0.0) -> list[str]:
    """Steps of one attempt, which goes on after step first - 1. Returns the warnings of its timing lines."""
    with (
        Trackers(names, run.trackers, resumed_step=first - 1, settings=SETTINGS) as trackers,
        Records(run, writes=True, trackers=trackers) as records,
    ):
        for step in range(first, last + 1):
            metrics = {
                "step": step,
                "loss": loss + step,
                "gradient_norms": {"head": 0.5 * step},
                "activation_max": [2.0],
            }
            records.step(metrics, {"step": step, "seconds": 0.1, "data_wait_seconds": 0.0})
    return [warning for line in read_lines(run.timing) for warning in line.get("warnings", ())]


def shown(folder: Path) -> dict[str, dict[int, float]]:
    """The curves that TensorBoard shows of a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (log,) = {path.parent for path in folder.glob("longhaul/events*")}
    events = EventAccumulator(str(log), purge_orphaned_data=True)
    events.Reload()
    curves: dict[str, dict[int, float]] = {}
    for name in events.Tags()["scalars"]:
        points = [(point.step, point.value) for point in events.Scalars(name)]
        assert len({step for step, _ in points}) == len(points), f"{name} has a step twice"
        curves[name] = dict(points)
    return curves


def test_tensorboard_has_each_step_once_whatever_was_made_again(tmp_path: Path) -> None:
    from accelerate import PartialState

    PartialState()
    run = RunDirectory(tmp_path)
    send(("tensorboard",), run, 1, 5, loss=0.0)
    send(("tensorboard",), run, 4, 7, loss=10.0)
    curves = shown(run.trackers)
    assert curves["loss"] == {1: 1.0, 2: 2.0, 3: 3.0, 4: 14.0, 5: 15.0, 6: 16.0, 7: 17.0}
    assert curves["gradient_norms/head"] == {step: 0.5 * step for step in range(1, 8)}
    assert {"activation_max/0", "seconds"} <= curves.keys()


def test_a_tracker_gets_no_step_twice_and_the_settings_once(notes: type[Notes], tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert send(("notes", "notes"), run, 1, 5) == []
    assert send(("notes",), run, 4, 7) == []
    assert [step for step, _ in notes.seen] == list(range(1, 8))
    assert notes.seen[2][1]["gradient_norms/head"] == 1.5
    assert notes.settings == [{"num_steps": 4, "model/hidden_size": 24, "compile": True, "head": "None"}]


def test_a_tracker_that_fails_is_told_of_once_and_the_records_go_on(notes: type[Notes], tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    notes.fails_at = 2
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain")
    tail = MetricsTail(run, micro.config(), journal, resumed_step=0)
    with (
        Trackers(("notes",), run.trackers, resumed_step=0, settings=SETTINGS) as trackers,
        Records(run, writes=True, trackers=trackers) as records,
    ):
        for step in range(1, 2001):
            records.step({"step": step, "tokens": step}, {"step": step, "seconds": 0.1, "data_wait_seconds": 0.0})
            if step == 2:
                wait_until(lambda: not any(thread.name == "tracker notes" for thread in threading.enumerate()))
    assert [step for step, _ in notes.seen] == [1]
    assert len(read_lines(run.metrics)) == 2000
    assert tail.poll() == 2000
    journal.close()
    warnings = [line["text"] for line in read_lines(tmp_path / "events.jsonl") if line["kind"] == "warning"]
    assert len(warnings) == 1
    assert "the tracker notes failed" in warnings[0] and "no network" in warnings[0]


def test_a_tracker_that_hangs_holds_nothing_up(
    notes: type[Notes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notes.may_go.clear()
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.01)
    warnings = send(("notes",), RunDirectory(tmp_path), 1, 9)
    assert len(read_lines(tmp_path / "metrics.jsonl")) == 9
    notes.may_go.set()
    assert len(warnings) == 1 and "too slow" in warnings[0]
    assert "the tracker notes had not got all steps when the training ended" in capsys.readouterr().err


def test_a_tracker_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pretrain.trackers: Accelerate knows no tracker 'tensorbord', only .*wandb"):
        Trackers(("tensorbord",), tmp_path, resumed_step=0, settings={})
    with pytest.raises(InputError, match="pip install comet_ml"):
        Trackers(("comet_ml",), tmp_path, resumed_step=0, settings={})
    assert Trackers((), tmp_path / "none", resumed_step=0, settings={}).step(1, [{"step": 1}]) == []
    assert not (tmp_path / "none").exists()


def test_scalars_are_the_finite_numbers_by_path() -> None:
    line = {"loss": None, "a": {"b": 1, "c": {"d": 2.5}}, "list": [3.0, None], "text": "x", "flag": True}
    assert scalars(line) == {"a/b": 1.0, "a/c/d": 2.5, "list/0": 3.0}
