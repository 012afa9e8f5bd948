"""The processes of a disturbed run: supervisor, launcher and ranks, and whatever else carries its mark.

The mark is a variable of the environment, which children inherit and which stays legible in /proc when a parent has
gone: what outlives its parent is found however it is related.
"""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos.hook import FOLDER

ORPHAN_SECONDS = 10.0
POLL_SECONDS = 0.02


def members(folder: Path) -> list[psutil.Process]:
    """All living processes of the run in `folder`."""
    mark = f"{FOLDER}={folder}".encode()
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError, psutil.NoSuchProcess):
            if place.name.isdigit() and mark in (place / "environ").read_bytes().split(b"\0"):
                process = psutil.Process(int(place.name))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


@dataclass(frozen=True)
class Family:
    """The processes of a run as they are now. Ranks in the order of their start."""

    supervisor: psutil.Process
    launcher: psutil.Process | None
    ranks: tuple[psutil.Process, ...]

    @classmethod
    def of(cls, supervisor: int) -> "Family":
        root = psutil.Process(supervisor)
        with suppress(psutil.NoSuchProcess):
            for child in root.children():
                if "launch" in " ".join(child.cmdline()):
                    ranks = sorted(child.children(), key=lambda rank: (rank.create_time(), rank.pid))
                    return cls(root, child, tuple(ranks))
        return cls(root, None, ())


def send(processes: list[psutil.Process], number: signal.Signals) -> None:
    """A signal to each that is still there."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # it may have ended by itself in between
            os.kill(process.pid, number)


def left_over(folder: Path) -> list[str]:
    """What is still alive of a run some seconds after its supervisor has gone, each process in words; it is ended."""
    until = time.monotonic() + ORPHAN_SECONDS
    while (left := members(folder)) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    said = []
    for process in left:
        with suppress(psutil.NoSuchProcess):
            said.append(f"process {process.pid} ({' '.join(process.cmdline())[:200]}) outlived its parent")
    send(left, signal.SIGKILL)
    return said
