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
        listener({"stage": "curate", "kind": "error", "text": "no text is left"})
        listener({"stage": "report", "kind": "artifact", "key": "0123456789ab", "path": "x", "hit": True})
        listener({"stage": "export", "kind": "artifact", "key": "0123456789ab", "path": "x", "hit": False})
        listener({"stage": "pretrain", "kind": "metric", "loss": 1.0})
    assert screen.getvalue().splitlines() == [
        "curate       warning: lost [80%] of its bytes",
        "curate       error: no text is left",
        "report       up to date (0123456789ab)",
    ]


def test_what_threatens_a_training_is_told_in_sentences(screen: io.StringIO) -> None:
    events = [
        {"kind": "account", "effective_training_time": 0.97},
        {"kind": "incident", "step": 1041, "cause": "killed", "reason": "killed", "decision": "relaunch"},
        {"kind": "excluded", "first": 1040, "last": 1041, "step": 1041, "documents": {}},
        {"kind": "group.lost", "group": 1, "cause": "killed", "exit_code": -9, "epoch": 2, "groups": [0, 2]},
        {"kind": "group.joined", "group": 1, "epoch": 3, "groups": [0, 2, 1], "seconds": 4.21},
        {"kind": "data.stalled", "rank": 3, "step": 1041, "seconds": 20.4},
        {"kind": "store.stalled", "url": "s3://b", "operation": "write", "error": "Stalled: 20 s"},
        {"kind": "store.recovered", "url": "s3://b", "seconds": 61.2},
        {"kind": "checkpoint.uploaded", "step": 2000, "url": "s3://b", "seconds": 2.04, "bytes": 9},
        {"kind": "checkpoint.restored", "step": 2000, "url": "s3://b", "seconds": 2.0, "bytes": 9},
    ]
    with ConsoleListener() as listener:
        for event in events:
            listener({"stage": "pretrain", **event})
    assert [line.removeprefix("pretrain     ") for line in screen.getvalue().splitlines()] == [
        "incident after step 1,041: killed; relaunch",
        "the batch of step 1,041 (draw 1,040) is left out from here on",
        "group 1 was lost (killed); the others go on",
        "group 1 trains with the others, after 4.2 s",
        "rank 3 has waited 20 s for the data of step 1,041",
        "s3://b does not answer, and is tried again (write: Stalled: 20 s)",
        "s3://b answers again after 61 s",
        "checkpoint of step 2,000 is in s3://b (2.0 s)",
        "checkpoint of step 2,000 has been fetched from s3://b",
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
