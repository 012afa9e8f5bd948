"""The fault injector of redundant runs: by the place of a rank among all, since each group has a rank 0.

    plan(monkeypatch, folder, ("update", 7, 1, "kill"), ("begin", 15, 0, "whole"), root=root, num_groups=3)

"kill" ends the process, "stop" stops it, and "launcher" ends what has launched it, once; "whole" holds a rank up until
all groups are members. Every rank notes down, in its file of `folder`, the rows of each step that it has completed, and
which process it was.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from stages.pretrain.faults import ALLOWED
from stages.pretrain.parallel.ranks import SLOT
from stages.pretrain.parallel.redundant_members import MEMBERS

HOOK = f"{__name__}:inject"
PLAN, FOLDER, ROOT, GROUPS = (f"LONGHAUL_TEST_LOSSES_{name}" for name in ("PLAN", "FOLDER", "ROOT", "GROUPS"))
POLL_SECONDS = 0.01


def plan(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *faults: tuple[str, int, int, str],
    root: Path,
    num_groups: int,
) -> None:
    """For the run of the store `root` that is started from here on: (point, step, place, kind) of each fault."""
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv(PLAN, json.dumps(faults))
    for name, value in ((FOLDER, folder), (ROOT, root), (GROUPS, num_groups)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv(ALLOWED, "1")


def noted(folder: Path) -> list[dict[str, Any]]:
    """{step, place, pid, samples} of each step that a rank has completed; samples: [domain, sequence] of each row."""
    return [
        json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines() if line
    ]


_rows: list[list[int]] = []


def inject(point: str, step: int, rank: int, value: Any) -> Any:
    global _rows
    place, folder = int(os.environ[SLOT]), Path(os.environ[FOLDER])
    if point == "batch":
        _rows = [[int(d), int(s)] for d, s in zip(value.samples.domain, value.samples.sequence, strict=True)]
    if point == "end":
        line = {"step": step, "place": place, "pid": os.getpid(), "time": time.monotonic(), "samples": _rows}
        with open(folder / f"{os.getpid()}.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
    for at, (at_point, at_step, at_place, kind) in enumerate(json.loads(os.environ[PLAN])):
        if (point, step, place) != (at_point, at_step, at_place):
            continue
        mark = folder / f"mark-{at}"
        if kind == "whole":
            _await_all(int(os.environ[GROUPS]))
        elif not mark.exists():
            mark.write_text(str(time.monotonic()))
            number = signal.SIGSTOP if kind == "stop" else signal.SIGKILL
            os.kill(os.getppid() if kind == "launcher" else os.getpid(), number)
            signal.pause()
    return value


def _await_all(num_groups: int) -> None:
    (members,) = Path(os.environ[ROOT]).glob(f"runs/*/redundancy/{MEMBERS}")
    while len(json.loads(members.read_text())["groups"]) < num_groups:
        time.sleep(POLL_SECONDS)
