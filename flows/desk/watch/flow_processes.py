"""The processes of flow runs on this machine. A run's process, and whatever that starts, has the id of the run in its
environment."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flows.desk.names import FLOW_RUN
from stages import kernel

VARIABLE = f"{FLOW_RUN}=".encode()
WORKER = b"\0worker\0start\0"  # prefect worker start
ENGINE = (b"flows.desk.engine", b"prefect.engine", b"prefect.flow_engine", b"prefect.runner._workspace")


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process of a flow run. leads: whether it is the one that a worker starts. adopted: whether it is, and its
    parent is no worker, so that nobody here would pass a cancellation on to it."""

    pid: int
    run: str
    leads: bool
    adopted: bool


def flow_processes() -> dict[str, list[Process]]:
    """Run -> its processes, of this user, on this machine."""
    found: dict[str, list[Process]] = {}
    for process in _processes():
        found.setdefault(process.run, []).append(process)
    return found


def _processes() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            _, variable, rest = (b"\0" + (entry / "environ").read_bytes()).partition(b"\0" + VARIABLE)
            if not variable:
                continue
            pid = int(entry.name)
            if kernel.state_of(pid) == "Z":
                continue
            command = (entry / "cmdline").read_bytes()
            leads = any(name in command for name in ENGINE)
            run = rest.partition(b"\0")[0].decode("ascii", "replace")
            yield Process(pid=pid, run=run, leads=leads, adopted=leads and not _is_worker(kernel.parent_of(pid)))


def _is_worker(pid: int) -> bool:
    try:
        return WORKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
