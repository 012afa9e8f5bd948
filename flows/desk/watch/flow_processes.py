"""The processes of flow runs on this machine. A run's process, and whatever that starts, has the id of the run in its
environment."""

import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

VARIABLE = b"PREFECT__FLOW_RUN_ID="
ENGINE = (b"flows.desk.engine", b"prefect.engine", b"prefect.flow_engine", b"prefect.runner._workspace")


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process of a flow run. leads: whether it is the one that a worker starts. adopted: whether it is, and its
    parent is no worker, so that nobody here would pass a cancellation on to it."""

    pid: int
    run: str
    leads: bool
    adopted: bool


def worker_name() -> str:
    """What the desk's worker on this machine is called."""
    return f"desk-{platform.node()}"


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
            pid, parent, zombie = int(entry.name), *_parent(entry)
            if zombie:
                continue
            command = (entry / "cmdline").read_bytes()
            leads = any(name in command for name in ENGINE)
            run = rest.partition(b"\0")[0].decode("ascii", "replace")
            yield Process(pid=pid, run=run, leads=leads, adopted=leads and not _is_worker(parent))


def _parent(entry: Path) -> tuple[int, bool]:
    """(process id of the parent, whether the process has ended and was not yet waited for)."""
    state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
    return int(parent), state == "Z"


def _is_worker(pid: int) -> bool:
    try:
        return b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
