"""What of a desk is to be started, and when: its parts, looked at again and again.

What has died is started again, later each time (1, 2, 4 … 60 s) until it stays. A server that answers no more for
minutes is killed and started again; a flow run outlasts that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from flows.desk.processes.parts import Part
from flows.desk.processes.process import Process
from stages.errors import BAD_INPUT, OK

HEALTH_EVERY_SECONDS = 5.0
START_SECONDS = 300.0  # a server that brings a large database up to date needs minutes
HANG_SECONDS = 120.0
STEADY_SECONDS = 120.0  # one that has run for so long begins anew with the shortest delay
MOST_DELAY_SECONDS = 60.0


class Machine(Protocol):
    """What is asked of the world."""

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


class Restarts:
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
        """How often each part has ended in a row; 0 once it has run for long."""
        return {child.part.name: child.failures for child in self._children}

    def tick(self) -> bool:
        """Look at every part and do what is due. True if `processes` or `failures` have changed."""
        before = self.processes, self.failures
        self._look_at_server()
        for child in self._children:
            if child.process and not self._machine.is_alive(child.process):
                self._note_end(child, child.process)
            elif child.failures and self._is_steady(child):
                child.failures = 0
            if child.process is None and not child.done and self._machine.now() >= child.start_at:
                self._start(child)
        return (self.processes, self.failures) != before

    def _is_steady(self, child: Child) -> bool:
        serves = child.part.name != "server" or self._healthy_at is not None
        return child.process is not None and serves and self._machine.now() - child.started_at >= STEADY_SECONDS

    def _note_end(self, child: Child, process: Process) -> None:
        name, code = child.part.name, self._machine.exit_code(process)
        child.process = None
        if child.part.once and code in (OK, BAD_INPUT):
            child.done = True
            self._say(f"{name} is done" if code == OK else f"{name} needs a change: see {name}.log")
            return
        self._postpone(child, "has ended" if code is None else f"has ended with {code}")

    def _postpone(self, child: Child, why: str) -> None:
        delay = min(2.0 ** min(child.failures, 10), MOST_DELAY_SECONDS)  # what fails for a day has failed 1,440 times
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
            server.started_at = now  # until it has gone
