"""What a person sees of a journal, in a terminal and on a pipe."""

import io

import pytest
from rich.console import Console

from stages.console import ConsoleListener
from stages.journal import Event


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Where a listener prints that takes it for a pipe."""
    stream = io.StringIO()
    monkeypatch.setattr("stages.console.Console", lambda **_: Console(file=stream, width=200))
    return stream


def progress(done: int, total: int = 10, name: str = "read") -> Event:
    return {
        "stage": "curate",
        "kind": "progress",
        "name": name,
        "done": done,
        "total": total,
        "unit": "files",
        "text": "",
    }


def test_lines_name_the_stage(screen: io.StringIO) -> None:
    with ConsoleListener() as listener:
        listener({"stage": "curate", "kind": "warning", "text": "lost [80%] of its bytes"})
        listener({"stage": "report", "kind": "artifact", "key": "0123456789ab", "path": "x", "hit": True})
        listener({"stage": "export", "kind": "artifact", "key": "0123456789ab", "path": "x", "hit": False})
        listener({"stage": "pretrain", "kind": "metric", "loss": 1.0})
    assert screen.getvalue().splitlines() == [
        "curate       warning: lost [80%] of its bytes",
        "report       up to date (0123456789ab)",
    ]


def test_on_a_pipe_only_long_steps_speak(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("stages.console.time.monotonic", lambda: now)
    with ConsoleListener() as listener:
        for name, pace in (("short", 0.1), ("long", 2.0)):
            for done in range(1, 11):
                now += pace
                listener(progress(done, name=name))
    lines = screen.getvalue().splitlines()
    assert not any("short" in line for line in lines)
    assert lines[0].endswith("long: 4 of 10") and lines[-1].endswith("long: 10 files")
    assert len(lines) == 3


def test_a_step_that_ends_early_leaves_no_bar(screen: io.StringIO) -> None:
    with ConsoleListener() as listener:
        listener(progress(3))
        assert len(listener._progress.tasks) == 1
        listener({"stage": "curate", "kind": "stage.finished", "key": "x", "seconds": 1.0})
        assert listener._progress.tasks == []
