"""The keeper: one small process that keeps the server, the worker and the watch running, for months.

It runs until it is told to stop, and then ends the desk; or to leave, and then all goes on. It adopts what another one
has left: killing the keeper costs no training.
"""

import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from data.errors import InputError
from flows.desk.client import Client
from flows.desk.processes.logs import rotate
from flows.desk.processes.parts import SIGNATURES, Part, part_played, parts_of
from flows.desk.processes.process import Process, of_desk, reap, start
from flows.desk.processes.restarts import Restarts
from flows.desk.processes.state import keeping, write_state
from flows.desk.processes.stopping import end, stop_desk, stop_part, stop_worker
from flows.desk.settings import DeskSettings, address, api_url, client_environment, desk_home
from flows.serving import is_healthy

LEAVE = signal.SIGUSR1
TICK_SECONDS = 0.5
ROTATE_EVERY_SECONDS = 60.0

Say = Callable[[str], None]


class Here:
    """This machine, as `restarts.Machine` wants it. Output goes to PREFECT_HOME/desk/NAME.log."""

    def __init__(self, settings: DeskSettings, home: Path) -> None:
        self._settings = settings
        self._home = home
        self._client = Client(api_url(settings), client_environment(settings))
        self._codes: dict[int, int] = {}

    def now(self) -> float:
        return time.monotonic()

    def start(self, part: Part) -> Process:
        self._codes |= reap()  # else Popen takes notice of those that have ended, and tells nobody
        return start(part.command, part.environment, self._home / f"{part.name}.log")

    def is_alive(self, process: Process) -> bool:
        self._codes |= reap()
        return process.alive

    def exit_code(self, process: Process) -> int | None:
        """None for a process that another keeper has started."""
        return self._codes.pop(process.pid, None)

    def kill(self, process: Process) -> None:
        process.signal(signal.SIGKILL)

    def server_is_healthy(self) -> bool:
        return is_healthy(api_url(self._settings))

    def may_start(self, part: Part) -> bool:
        """The worker and the watch wait for a server, the worker also for its pool."""
        if part.name == "server":
            return True
        if part.name == "worker":
            return self._client.exists(f"/work_pools/{self._settings.pool}")
        return self.server_is_healthy()


def keep_desk(settings: DeskSettings, say: Say, *, provision: bool) -> None:
    """Keep the desk until SIGTERM or SIGINT, and end it; or until LEAVE, and leave it. Raises TryAgain if it has a
    keeper, InputError for settings that cannot be used here."""
    home, parts = desk_home(), parts_of(settings, provision=provision)
    with keeping(home):
        told = _Told()
        if "server" in settings.parts:
            require_free_port(settings, home)
        restarts = Restarts(parts, Here(settings, home), say, adopt(parts, home, say))

        def note() -> None:
            with suppress(OSError):  # a disk that is full must not cost the desk
                write_state(home, address(settings), restarts.processes, restarts.failures)

        note()
        _keep(restarts, told.any, note, home)
        if not told.leave:
            say("stopping")
            stop_desk(home, say, told.twice)
            with suppress(OSError):
                write_state(home, address(settings), {}, {})


def _keep(restarts: Restarts, stopped: Callable[[], bool], on_change: Callable[[], None], logs: Path) -> None:
    rotated_at = time.monotonic()
    while not stopped():
        if restarts.tick():
            on_change()
        if time.monotonic() - rotated_at >= ROTATE_EVERY_SECONDS:
            rotated_at = time.monotonic()
            with suppress(OSError):
                rotate(logs)
        time.sleep(TICK_SECONDS)


def adopt(parts: Sequence[Part], home: Path, say: Say) -> dict[str, Process]:
    """Processes of the desk that another keeper has left and that are as they would be started now, by part. Others
    are ended; flow runs of a worker that ends take their last checkpoint and continue with the next one."""
    wanted = {part.name: part for part in parts}
    kept: dict[str, Process] = {}
    for name in reversed(SIGNATURES):
        found = [process for process in of_desk(home) if part_played(process) == name]
        good = [process for process in found if name in wanted and wanted[name].agrees(process)]
        if good:
            kept[name] = good[0]
            end([process for process in found if process != good[0]], signal.SIGKILL)
            say(f"{name} goes on, process {good[0].pid}")
        elif found:
            stop_worker(home, say) if name == "worker" else stop_part(name, home, say)
    return kept


def require_free_port(settings: DeskSettings, home: Path) -> None:
    """Raises InputError if the server could not listen, unless it is our own that does."""
    servers = (process for process in of_desk(home) if part_played(process) == "server")
    if any(server.environment.get("PREFECT_SERVER_API_PORT") == str(settings.port) for server in servers):
        return
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((settings.host, settings.port))
        except OSError as error:
            raise InputError(
                f"port = {settings.port}, host = {settings.host!r}: the server cannot listen there ({error.strerror}); "
                "choose another with --set port=… or in the desk's file"
            ) from None


class _Told:
    """What signals have said to this process."""

    def __init__(self) -> None:
        self.leave = False
        self._times = 0
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, LEAVE):
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.leave |= number == LEAVE
        self._times += 1

    def any(self) -> bool:
        return self._times > 0

    def twice(self) -> bool:
        return self._times > 1
