"""Processes by what their environment says, which children inherit: also one that outlives its parent is found.

Prefect puts the id of its run into the environment of each flow process, so that a run's whole family carries it.
"""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

FLOW_RUN = "PREFECT__FLOW_RUN_ID"
POLL_SECONDS = 0.05
LAUNCHER = "stages.pretrain.supervision.launcher"


def marked(variable: str, value: str) -> list[psutil.Process]:
    """All living processes in whose environment `variable` was `value` when they were started."""
    mark = f"{variable}={value}".encode()
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError, psutil.NoSuchProcess):
            if place.name.isdigit() and mark in (place / "environ").read_bytes().split(b"\0"):
                process = psutil.Process(int(place.name))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def of_run(run: str) -> list[psutil.Process]:
    """The flow process of a run, its stages, and all that these have started."""
    return marked(FLOW_RUN, run)


def command(process: psutil.Process) -> str:
    """Its command line; empty if it has gone."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def whose(processes: Iterable[psutil.Process], *words: str) -> list[psutil.Process]:
    """Those whose command line holds each of `words`."""
    return [process for process in processes if all(word in command(process) for word in words)]


def flow_process(run: str) -> psutil.Process:
    """The process of the flow: the oldest of the run's family."""
    return min(of_run(run), key=lambda process: process.create_time())


def supervisors(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes of pretrain stages."""
    return whose(processes, "-m stages.pretrain ")


def launchers(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that fork ranks."""
    return [process for process in whose(processes, LAUNCHER) if not _is_forked(process)]


def ranks(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """In the order of their start. A forked process has the command line of its launcher."""
    found = [process for process in whose(processes, LAUNCHER) if _is_forked(process)]
    return sorted(found, key=lambda process: (process.create_time(), process.pid))


def _is_forked(process: psutil.Process) -> bool:
    """From a launcher, which may have gone meanwhile: then its parent is none that starts launchers."""
    with suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return parent is None or "-m stages." not in command(parent) or LAUNCHER in command(parent)
    return False


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """A signal to each that is still there."""
    for process in processes:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if process.is_running():
                os.kill(process.pid, number)


def gone(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that are still there after so long, or as soon as none is."""
    until = time.monotonic() + seconds
    while (left := [each for each in processes if _lives(each)]) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    return left


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
