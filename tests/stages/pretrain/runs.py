"""Whole runs of the micro model: what they leave, and supervisors that are stopped on the way.

Local checkpoints are taken every few milliseconds and waited for, so that a kill finds one to go on from, a step or two
back.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory, read_lines
from stages.store import Artifact, Store
from tests.stages.pretrain import faults, micro

STEPS = 20
WAITS_AT = 9  # a supervisor that is to be stopped gets no further, however late the signal comes


def config(num_processes: int, **changes: Any) -> PretrainConfig:
    settings = {"num_steps": STEPS, "checkpoint_seconds": 1e-3, "asynchronous_checkpoints": False}
    return micro.config(**{**settings, "num_processes": num_processes, **changes})


def metrics(artifact: Artifact) -> list[dict[str, Any]]:
    return read_lines(artifact.path / "metrics.jsonl")


def incidents(store: Store, artifact: Artifact) -> list[dict[str, Any]]:
    return read_lines(RunDirectory(store.runs_path(artifact.key)).incidents)


def state_digests(store: Store) -> list[str]:
    return sorted(artifact.facts["state_digest"] for artifact in store.all("checkpoint"))


def stopped_supervisor(root: Path, num_processes: int, number: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a supervisor, a process of its own, that signal `number` has stopped in its first steps, when
    there was a checkpoint; nothing that it had started outlives it. SIGTERM comes to all processes of the run, as from
    a batch system."""
    with monkeypatch.context() as patch:
        faults.plan(patch, root / "waits", ("begin", WAITS_AT, 0, "wait"))
        command = [sys.executable, "-m", "tests.stages.pretrain.micro", str(root), f"hook={faults.HOOK}"]
        command += [
            "checkpoint_seconds=0.001",
            f"num_processes={num_processes}",
            f"num_steps={STEPS}",
            "grace_seconds=0.5",
            "asynchronous_checkpoints=false",
        ]
        process = subprocess.Popen(command)
    try:
        wait_for(lambda: bool(list((root / "runs").glob("*/checkpoints/step-0000000?"))), "a checkpoint")
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) == 1 + num_processes, "the launcher and its ranks"
        os.kill(process.pid, number)
        for member in family if number == signal.SIGTERM else ():
            member.send_signal(number)
        exit_code = process.wait(60)
        wait_for(lambda: not any(alive(member) for member in family), "the end of all processes")
        return exit_code
    finally:
        process.kill()
        process.wait()


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not come within {seconds} s"
        time.sleep(0.02)
