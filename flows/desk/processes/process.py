"""Processes of the desk: started in sessions of their own, and recognised again after their keeper has died.

A process is named by its id and by when it was started, since ids are used again. Whatever a desk has started, at any
depth, carries the desk's mark in its environment: nothing is lost with its parent.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stages import kernel

MARK = "LONGHAUL_DESK"
ENDED = ("Z", "X", "")
POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process for as long as it lives. `started` counts from the start of the machine, which `boot` names."""

    pid: int
    started: float
    boot: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process that has this id now; None if there is none."""
        started = kernel.started(pid)
        if started is None or kernel.state_of(pid) in ENDED:
            return None
        return cls(pid=pid, started=started, boot=kernel.boot_id())

    @property
    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal, to its whole process group if so said; nothing if it has ended."""
        with suppress(ProcessLookupError):
            if self.alive:
                if group:
                    os.killpg(os.getpgid(self.pid), number)
                else:
                    os.kill(self.pid, number)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it was started with; empty if it has ended or is another user's."""
        entries = (entry.partition(b"=") for entry in self._file("environ").split(b"\0") if entry)
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in entries}

    @property
    def command(self) -> tuple[str, ...]:
        return tuple(os.fsdecode(word) for word in self._file("cmdline").split(b"\0")[:-1])

    @property
    def parent(self) -> int:
        return kernel.parent_of(self.pid)

    def _file(self, name: str) -> bytes:
        try:
            return Path(f"/proc/{self.pid}/{name}").read_bytes()
        except OSError:
            return b""


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module with this Python."""
    return (sys.executable, "-m", module, *arguments)


def start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
    """Start a command in a session of its own, its output appended to `log`. It does not end with its parent, and does
    not inherit an ignored SIGINT, with which a worker could not be stopped."""
    with open(log, "ab") as output:
        child = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_reset_signals,
        )
    started = kernel.started(child.pid)
    assert started is not None, "a child that nobody has waited for is there"
    return Process(pid=child.pid, started=started, boot=kernel.boot_id())


def _reset_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def reap() -> dict[int, int]:
    """Take notice of children that have ended: process id -> exit code, negative for a signal."""
    codes = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            codes[pid] = os.waitstatus_to_exitcode(status)
    return codes


def of_desk(home: Path) -> list[Process]:
    """Every process that carries the mark of the desk at `home`, without the one that asks."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            process = Process.of(int(entry))
            if process and process.environment.get(MARK) == str(home):
                found.append(process)
    return found


def roots(processes: Sequence[Process]) -> list[Process]:
    """Those whose parent is not among them."""
    ids = {process.pid for process in processes}
    return [process for process in processes if process.parent not in ids]


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether `condition` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
