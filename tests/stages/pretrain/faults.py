"""The fault injector that test runs give to their workers: each fault of the list happens once, also over restarts,
except a poisoned batch, which is one each time.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from stages.pretrain.faults import ALLOWED
from stages.pretrain.parallel.ranks import RENDEZVOUS

HOOK = f"{__name__}:inject"
FAULTS, MARKS = "LONGHAUL_TEST_FAULTS", "LONGHAUL_TEST_FAULT_MARKS"


def plan(monkeypatch: pytest.MonkeyPatch, marks: Path, *faults: tuple[str, int, int, str]) -> None:
    """Let workers that are started from here on fail at (point, step, rank): by "kill", "nan", "crash", "stop" (of its
    process), "wait" (for a signal), "launcher" (killed), "notice" (SIGUSR1 to the supervisor), "shrink" (killed, and a
    process less may run), "grow" (all may run again); or by "poisoned" at (point, draw, rank), with NaN."""
    marks.mkdir(exist_ok=True)
    monkeypatch.setenv(FAULTS, json.dumps(faults))
    monkeypatch.setenv(MARKS, str(marks))
    monkeypatch.setenv(ALLOWED, "1")


_draw = -1


def inject(point: str, step: int, rank: int, value: Any) -> Any:
    global _draw
    _draw = value if point == "begin" else _draw
    for number, (at_point, at_step, at_rank, kind) in enumerate(json.loads(os.environ[FAULTS])):
        if kind == "poisoned":
            if (point, _draw, rank) == (at_point, at_step, at_rank):
                return value * float("nan")
            continue
        mark = Path(os.environ[MARKS]) / str(number)
        if (point, step, rank) != (at_point, at_step, at_rank) or mark.exists():
            continue
        mark.touch()
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "wait":
            signal.pause()
        if kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "launcher":
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        if kind == "notice":
            os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGUSR1)
            return _await_request(value)
        if kind in ("shrink", "grow"):
            file, size = run_directory() / "processes", int(os.environ["WORLD_SIZE"])
            if kind == "grow":
                file.unlink()
                return _await_request(value)
            file.write_text(str(size - 1))
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "crash":
            raise RuntimeError(f"an injected crash in step {step}")
        return value * float("nan")
    return value


def run_directory() -> Path:
    """Of the run that this worker trains."""
    return Path(os.environ[RENDEZVOUS]).parents[1]


def _await_request(value: Any) -> Any:
    """Until the supervisor has asked the ranks to leave."""
    while not (run_directory() / "request.json").exists():
        time.sleep(0.02)
    return value
