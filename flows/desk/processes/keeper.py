"""The keeper: one small process that keeps the server, the worker and the watch running, for months.

What has died is started again, later each time (1, 2, 4 … 60 s) until it stays. A server that answers no more for
minutes is killed and started again; a flow run outlasts that. A keeper adopts what another one has left: killing the
keeper costs no training.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flows.desk.processes.machine import Process
from flows.desk.processes.parts import Part
from stages.errors import BAD_INPUT, OK

TICK_SECONDS = 0.5
HEALTH_EVERY_SECONDS = 5.0
START_SECONDS = 300.0  # a server that brings a large database up to date needs minutes
HANG_SECONDS = 120.0
STEADY_SECONDS = 120.0  # one that has run for so long begins anew with the shortest delay
MOST_DELAY_SECONDS = 60.0
ROTATE_EVERY_SECONDS = 60.0
LOG_BYTES = 20 << 20
KEPT_LOGS = 3


class Machine(Protocol):
    """What the keeper asks of the world."""

    def now(self) -> float: ...
    def start(self, part: Part) -> Process: ...
    def is_alive(self, process: Process) -> bool: ...
    def exit_code(self, process: Process) -> int | None: ...
    def kill(self, process: Process) -> None: ...
    def server_is_healthy(self) -> bool: ...
    def may_start(self, part: Part) -> bool: ...


@dataclass
class Child:
    """A part and its process."""

    part: Part
    process: Process | None = None
    started_at: float = 0.0
    failures: int = 0
    start_at: float = 0.0
    done: bool = False


class Keeper:
    """Call `tick` again and again. `adopted`: processes of parts that are running already, by name."""

    def __init__(
        self,
        parts: Sequence[Part],
        machine: Machine,
        say: Callable[[str], None],
        adopted: dict[str, Process] | None = None,
    ) -> None:
        self._machine = machine
        self._say = say
        now = machine.now()
        self._children = [Child(part, (adopted or {}).get(part.name), started_at=now, start_at=now) for part in parts]
        self._asked_at = float("-inf")
        self._healthy_at: float | None = None

    @property
    def processes(self) -> dict[str, Process]:
        """What runs, by the name of the part."""
        return {child.part.name: child.process for child in self._children if child.process}

    @property
    def failures(self) -> dict[str, int]:
        """How often each part has ended in a row."""
        return {child.part.name: child.failures for child in self._children}

    def tick(self) -> bool:
        """Look at every part and do what is due. True if a process has come or gone."""
        before = self.processes
        self._look_at_server()
        for child in self._children:
            if child.process and not self._machine.is_alive(child.process):
                self._note_end(child, child.process)
            if child.process is None and not child.done and self._machine.now() >= child.start_at:
                self._start(child)
        return self.processes != before

    def _note_end(self, child: Child, process: Process) -> None:
        now, name, code = self._machine.now(), child.part.name, self._machine.exit_code(process)
        child.process = None
        if child.part.once and code in (OK, BAD_INPUT):
            child.done = True
            self._say(f"{name} is done" if code == OK else f"{name} needs a change: see {name}.log")
            return
        if now - child.started_at >= STEADY_SECONDS:
            child.failures = 0
        self._postpone(child, "has ended" if code is None else f"has ended with {code}")

    def _postpone(self, child: Child, why: str) -> None:
        delay = min(2.0**child.failures, MOST_DELAY_SECONDS)
        child.failures += 1
        child.start_at = self._machine.now() + delay
        name = child.part.name
        self._say(f"{name} {why}; it is started again in {delay:g} s; {name}.log may say more")

    def _start(self, child: Child) -> None:
        if not self._machine.may_start(child.part):
            return
        try:
            child.process = self._machine.start(child.part)
        except OSError as error:  # no memory, no room for a log: that may pass
            self._postpone(child, f"cannot be started: {error.strerror}")
            return
        child.started_at = self._machine.now()
        self._say(f"{child.part.name} started, process {child.process.pid}")
        if child.part.name == "server":
            self._healthy_at = None

    def _look_at_server(self) -> None:
        """Kill a server that is there and does not serve; it is then started like any other that has ended."""
        now = self._machine.now()
        server = next((child for child in self._children if child.part.name == "server"), None)
        if server is None or server.process is None or now - self._asked_at < HEALTH_EVERY_SECONDS:
            return
        self._asked_at = now
        if self._machine.server_is_healthy():
            self._healthy_at = self._machine.now()
            return
        silent = now - (server.started_at if self._healthy_at is None else self._healthy_at)
        if silent >= (START_SECONDS if self._healthy_at is None else HANG_SECONDS):
            self._say(f"server has not answered for {silent:.0f} s; it is killed")
            self._machine.kill(server.process)
            self._healthy_at = None
            server.started_at = now


def keep(keeper: Keeper, stopped: Callable[[], bool], on_change: Callable[[], None], logs: Path) -> None:
    """Tick until `stopped` is true."""
    rotated_at = time.monotonic()
    while not stopped():
        if keeper.tick():
            with suppress(OSError):  # a disk that is full must not cost the desk
                on_change()
        if time.monotonic() - rotated_at >= ROTATE_EVERY_SECONDS:
            rotated_at = time.monotonic()
            with suppress(OSError):
                rotate(logs)
        time.sleep(TICK_SECONDS)


def rotate(folder: Path, most_bytes: int = LOG_BYTES, kept: int = KEPT_LOGS) -> None:
    """Move what logs have grown beyond `most_bytes` to NAME.1, and so on up to `kept`. The processes that append to a
    log keep their file: it is copied and cut; a line that is written in between may be lost."""
    for log in folder.glob("*.log"):
        if log.stat().st_size <= most_bytes:
            continue
        for number in range(kept - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(f"{log}.{number}", f"{log}.{number + 1}")
        shutil.copyfile(log, f"{log}.1")
        os.truncate(log, 0)
