"""What a desk remembers of itself in PREFECT_HOME/desk: whose turn it is to keep it, and what runs."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.desk.processes.process import Process
from flows.serving import is_healthy
from stages.errors import TryAgain
from stages.files import write_json

LOCK = "keeper.lock"
STATE = "state.json"
LOCK_BYTES = 512


def make_home(home: Path) -> None:
    """The folder of a desk. PREFECT_HOME, in which it is, holds secrets: if it is made here, nobody else may look."""
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)


@contextmanager
def keeping(home: Path) -> Iterator[None]:
    """A block in which this process alone keeps the desk. Raises TryAgain while another one does."""
    make_home(home)
    descriptor = os.open(home / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TryAgain(f"the desk in {home} has a keeper already; `python -m flows.desk down` ends it") from None
        me = Process.of(os.getpid())
        assert me
        with suppress(OSError):
            _overwrite(descriptor, json.dumps(asdict(me)).encode())
        yield
    finally:
        os.close(descriptor)  # the lock goes with it


def _overwrite(descriptor: int, content: bytes) -> None:
    """In the place that the file has: a desk must start, and above all stop, on a disk that is full."""
    os.pwrite(descriptor, content.ljust(LOCK_BYTES), 0)


def keeper_of(home: Path) -> Process | None:
    """The process that keeps the desk now."""
    try:
        process = Process(**json.loads((home / LOCK).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return process if process.alive else None


def write_state(home: Path, address: str, processes: Mapping[str, Process], failures: Mapping[str, int]) -> None:
    """For people and other commands; the processes themselves say who they are."""
    running = {name: asdict(process) for name, process in processes.items()}
    write_json(home / STATE, {"address": address, "processes": running, "failures": dict(failures)})


def read_state(home: Path) -> dict[str, Any]:
    """What `write_state` wrote; empty if nothing is there."""
    try:
        found = json.loads((home / STATE).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def running_desk(home: Path) -> str:
    """Address of the API of the desk that runs here now and answers; "" if none does."""
    if not (site := read_state(home).get("address")) or not keeper_of(home):
        return ""
    url = f"{site}/api"
    return url if is_healthy(url) else ""
