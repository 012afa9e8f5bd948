"""A user relies on: a stage that computes in silence is not taken for one that hangs, and one that hangs is."""

import threading
import time
from pathlib import Path

from stages.alive import Alive, cpu_of_family
from stages.journal import Journal, read_events

INTERVAL_SECONDS = 0.05


def lines(folder: Path, cpu_seconds: list[float], *, speaks: bool = False) -> list[float]:
    """The cpu_seconds of the lines that a journal gets while its stage's CPU time takes these values in turn."""
    journal = Journal(folder / "events.jsonl", stage="curate")
    values, done = iter(cpu_seconds), threading.Event()

    def next_value() -> float:
        value = next(values, None)
        if value is None:
            done.set()
            return cpu_seconds[-1]
        return value

    with Alive(journal, interval_seconds=INTERVAL_SECONDS, cpu_seconds=next_value):
        if speaks:
            for number in range(20):
                journal.event("note", text=str(number))
                time.sleep(INTERVAL_SECONDS / 4)
        else:
            done.wait(60)
    journal.close()
    return [event["cpu_seconds"] for event in read_events(folder / "events.jsonl") if event["kind"] == "alive"]


def test_a_stage_that_computes_says_so(tmp_path: Path) -> None:
    assert lines(tmp_path, [1.0, 2.0, 3.0, 3.0]) == [2.0, 3.0]


def test_a_stage_that_waits_says_nothing(tmp_path: Path) -> None:
    """Polling takes some CPU too."""
    assert lines(tmp_path, [5.0, 5.0001, 5.0002, 5.0003]) == []


def test_a_stage_that_speaks_for_itself_is_not_looked_at(tmp_path: Path) -> None:
    assert lines(tmp_path, [1.0, 2.0], speaks=True) == []


def test_cpu_time_counts_what_runs_below() -> None:
    import subprocess
    import sys

    before = cpu_of_family()
    with subprocess.Popen([sys.executable, "-c", "import sys\nwhile True: pass"], stdout=subprocess.DEVNULL) as child:
        until = time.monotonic() + 60
        while cpu_of_family() - before < 0.3 and time.monotonic() < until:
            time.sleep(0.05)
        counted = cpu_of_family() - before
        child.kill()
    assert counted >= 0.3
