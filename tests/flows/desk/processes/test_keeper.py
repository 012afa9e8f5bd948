"""The keeper: its decisions with a clock and processes that are made up, and one desk of cheap stand-ins that is killed
in earnest."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flows.desk.processes import parts
from flows.desk.processes.keeper import HANG_SECONDS, MOST_DELAY_SECONDS, START_SECONDS, STEADY_SECONDS, Keeper, rotate
from flows.desk.processes.machine import Process, of_desk
from flows.desk.processes.parts import Part, has_variables, part_played, parts_of
from flows.desk.processes.state import keeper_of, keeping, running_desk, write_state
from flows.desk.settings import DeskSettings
from flows.serving import is_healthy

REPOSITORY = Path(__file__).parents[4]
SERVER, WORKER = (Part(name=name, command=(name,), own={}) for name in ("server", "worker"))
ONCE = Part(name="provision", command=("provision",), own={}, once=True)


class Machine:
    """A world without processes: `dies` ends one, `time` goes on by `pass_time`."""

    def __init__(self) -> None:
        self.time = 0.0
        self.started: list[tuple[float, str]] = []
        self.alive: dict[int, str] = {}
        self.codes: dict[int, int] = {}
        self.healthy = True
        self.ready = {"server", "worker", "provision"}
        self.refuses = 0

    def now(self) -> float:
        return self.time

    def start(self, part: Part) -> Process:
        if self.refuses:
            self.refuses -= 1
            raise OSError(12, "Cannot allocate memory")
        self.started.append((self.time, part.name))
        pid = len(self.started)
        self.alive[pid] = part.name
        return Process(pid=pid, started=self.time, boot="")

    def is_alive(self, process: Process) -> bool:
        return process.pid in self.alive

    def exit_code(self, process: Process) -> int | None:
        return self.codes.get(process.pid)

    def kill(self, process: Process) -> None:
        del self.alive[process.pid]

    def server_is_healthy(self) -> bool:
        return self.healthy and "server" in self.alive.values()

    def may_start(self, part: Part) -> bool:
        return part.name in self.ready

    def dies(self, name: str, code: int = -9) -> None:
        pid = next(pid for pid, played in self.alive.items() if played == name)
        self.codes[pid] = code
        del self.alive[pid]

    def times(self, name: str) -> list[float]:
        return [time for time, started in self.started if started == name]


def pass_time(machine: Machine, keeper: Keeper, seconds: float, each: Callable[[], None] = lambda: None) -> None:
    end = machine.time + seconds
    while machine.time < end:
        keeper.tick()
        each()
        machine.time += 0.5


def ignore(text: str) -> None:
    pass


def test_what_is_there_is_left_alone() -> None:
    machine = Machine()
    keeper = Keeper([SERVER, WORKER], machine, ignore)
    pass_time(machine, keeper, 1000)
    assert machine.started == [(0.0, "server"), (0.0, "worker")]


def test_what_dies_again_and_again_is_started_later_each_time() -> None:
    machine = Machine()
    keeper = Keeper([WORKER], machine, ignore)
    pass_time(machine, keeper, 500, lambda: machine.dies("worker") if machine.alive else None)
    times = machine.times("worker")
    delays = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    tick = 0.5  # after which a death is noticed
    assert delays[:9] == [tick + delay for delay in (1, 2, 4, 8, 16, 32, *(3 * [MOST_DELAY_SECONDS]))]


def test_what_has_run_for_long_is_started_at_once() -> None:
    machine = Machine()
    keeper = Keeper([WORKER], machine, ignore)
    for _ in range(5):
        pass_time(machine, keeper, STEADY_SECONDS + 2)
        machine.dies("worker")
        died = machine.time
        pass_time(machine, keeper, 2)
        assert machine.times("worker")[-1] - died <= 1.5


def test_a_machine_without_memory_does_not_end_the_keeper() -> None:
    machine = Machine()
    machine.refuses = 3
    said: list[str] = []
    keeper = Keeper([SERVER], machine, said.append)
    pass_time(machine, keeper, 20)
    assert len(machine.times("server")) == 1
    assert sum("Cannot allocate memory" in text for text in said) == 3


def test_a_server_that_hangs_is_killed_and_one_that_is_busy_for_a_moment_is_not() -> None:
    machine = Machine()
    keeper = Keeper([SERVER], machine, ignore)
    pass_time(machine, keeper, 30)
    machine.healthy = False
    pass_time(machine, keeper, HANG_SECONDS - 10)
    machine.healthy = True
    pass_time(machine, keeper, 30)
    assert len(machine.times("server")) == 1
    machine.healthy = False
    pass_time(machine, keeper, HANG_SECONDS + 20)
    assert len(machine.times("server")) == 2


def test_a_server_that_takes_long_to_start_is_left_in_peace() -> None:
    machine = Machine()
    machine.healthy = False
    keeper = Keeper([SERVER], machine, ignore)
    pass_time(machine, keeper, START_SECONDS - 10)
    assert len(machine.times("server")) == 1
    pass_time(machine, keeper, 30)
    assert len(machine.times("server")) == 2


def test_a_worker_waits_for_its_pool() -> None:
    machine = Machine()
    machine.ready = {"server"}
    keeper = Keeper([SERVER, WORKER], machine, ignore)
    pass_time(machine, keeper, 30)
    assert not machine.times("worker")
    machine.ready.add("worker")
    pass_time(machine, keeper, 1)
    assert machine.times("worker")


@pytest.mark.parametrize(("code", "times"), [(0, 1), (2, 1), (1, 3)])
def test_what_runs_once_is_tried_again_only_where_that_may_help(code: int, times: int) -> None:
    machine = Machine()
    keeper = Keeper([ONCE], machine, ignore)
    pass_time(machine, keeper, 6, lambda: machine.dies("provision", code) if machine.alive else None)
    assert len(machine.started) == times


def test_an_adopted_process_is_not_started() -> None:
    machine = Machine()
    process = machine.start(WORKER)
    keeper = Keeper([WORKER], machine, ignore, {"worker": process})
    pass_time(machine, keeper, 10)
    assert len(machine.started) == 1
    machine.dies("worker")
    pass_time(machine, keeper, 10)
    assert len(machine.started) == 2


def test_long_logs_move_on_and_lose_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with open(log, "a") as writer:
        for turn in range(5):
            writer.write(f"{turn}" * 100)
            writer.flush()
            rotate(tmp_path, most_bytes=50, kept=3)
    assert log.read_text() == ""
    assert [Path(f"{log}.{number}").read_text()[0] for number in (1, 2, 3)] == ["4", "3", "2"]
    assert not Path(f"{log}.4").exists()


def test_the_worker_is_started_without_what_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_DATABASE_URL", "postgresql://me:hidden@host/db")
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "me:password")
    monkeypatch.setenv("SMTP_PASSWORD", "hidden")
    blocks = ({"type": "email", "name": "me", "secrets": {"password": "SMTP_PASSWORD"}},)
    parts = parts_of(DeskSettings.model_validate({"database": "postgresql", "blocks": blocks}), provision=True)
    environments = {part.name: part.environment for part in parts}
    assert list(environments) == ["server", "provision", "worker", "watch"]
    assert "hidden" in str(environments["server"])
    for name in ("worker", "watch"):
        assert "hidden" not in str(environments[name])
        assert environments[name]["PREFECT_API_AUTH_STRING"] == "me:password"
    assert not any("hidden" in str(part.command) or "password" in str(part.command) for part in parts)


class StandIns:
    """A desk in `folder` whose server and worker are cheap stand-ins for Prefect's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "prefect" / "desk"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        shell = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "LONGHAUL_"))}
        self.environment = {
            **shell,
            "PREFECT_HOME": str(folder / "prefect"),
            "PYTHONPATH": str(Path(__file__).parent / "stand_ins"),
            "STAND_IN_FOLDER": str(folder),
            "LONGHAUL_DESK_IN_BACKGROUND": "1",  # the keeper then leaves provisioning to `up`
        }
        self.keepers: list[subprocess.Popen[bytes]] = []

    def command(self, name: str, *sets: str) -> list[str]:
        fields = (f"port={self.port}", 'parts=["server", "services", "worker"]', *sets)
        line = [sys.executable, "-m", "flows.desk", name, "--settings", str(REPOSITORY / "deployments/desk.toml")]
        return line + [word for field in fields for word in ("--set", field)]

    def keep(self, *sets: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "keeper.txt", "ab") as output:
            keeper = subprocess.Popen(
                self.command("run", *sets), cwd=REPOSITORY, env=self.environment, stdout=output, stderr=output
            )
        self.keepers.append(keeper)
        return keeper

    def ask(self, name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(name), cwd=REPOSITORY, env=self.environment, capture_output=True, text=True, timeout=120
        )

    def pids(self) -> dict[str, int]:
        """Of the parts that run, of the keeper and of the flow run."""
        found = {part_played(process): process.pid for process in of_desk(self.home)}
        if keeper := keeper_of(self.home):
            found["keeper"] = keeper.pid
        if (flow := self.folder / "flow.pid").exists():
            found["flow"] = int(flow.read_text() or 0)
        return found

    def stands(self) -> bool:
        there = {"keeper", "server", "worker", "flow"} <= self.pids().keys()
        return there and is_healthy(f"http://127.0.0.1:{self.port}/api")

    def is_another(self, name: str, before: dict[str, int]) -> bool:
        return self.pids().get(name, before[name]) != before[name]

    def told(self) -> list[dict]:
        path = self.folder / "told.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[StandIns]:
    desk = StandIns(tmp_path)
    yield desk
    for keeper in desk.keepers:
        keeper.kill()
        keeper.wait()
    for process in of_desk(desk.home):
        process.signal(signal.SIGKILL)


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_a_desk_outlives_kills_and_leaves_nothing(desk: StandIns) -> None:
    keeper = desk.keep()
    wait_for(desk.stands)
    first = desk.pids()
    shown = desk.ask("status")
    assert shown.returncode == 0
    assert all(str(first[name]) in shown.stdout for name in ("keeper", "server", "worker"))

    os.kill(first["server"], signal.SIGKILL)
    wait_for(lambda: desk.stands() and desk.is_another("server", first))
    second = desk.pids()
    assert (second["worker"], second["flow"]) == (first["worker"], first["flow"])

    assert desk.keep().wait(120) == 75  # it has a keeper
    killed(keeper)
    keeper = desk.keep()
    wait_for(lambda: desk.stands() and desk.pids().get("keeper") == keeper.pid)
    third = desk.pids()
    assert {name: third[name] for name in ("server", "worker", "flow")} == {
        name: second[name] for name in ("server", "worker", "flow")
    }
    assert not desk.told()

    killed(keeper)
    keeper = desk.keep("worker_poll_seconds=7")  # the worker must be another; its run takes a checkpoint and is marked
    wait_for(lambda: desk.stands() and desk.is_another("worker", third))
    assert (desk.folder / "last checkpoint").exists()
    [told] = desk.told()
    assert told["path"] == "/api/flow_runs/11111111-2222-3333-4444-555555555555/set_state"
    assert (told["state"]["type"], told["state"]["message"]) == ("CRASHED", "the desk was stopped")

    killed(keeper)  # without a keeper, `down` ends what it has left
    done = desk.ask("down")
    assert done.returncode == 0, done.stderr
    assert not of_desk(desk.home)
    assert "no desk is running" in desk.ask("down").stdout


def test_ctrl_c_is_a_clean_end(desk: StandIns) -> None:
    keeper = desk.keep()
    wait_for(desk.stands)
    keeper.send_signal(signal.SIGINT)
    assert keeper.wait(120) == 0
    assert (desk.folder / "last checkpoint").exists()
    assert len(desk.told()) == 1
    assert not of_desk(desk.home)


def test_a_port_that_is_taken_is_named(desk: StandIns) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", desk.port))
        taken.listen()
        for name in ("run", "up"):
            done = desk.ask(name)
            assert done.returncode == 2
            assert f"port = {desk.port}" in done.stderr
    assert not of_desk(desk.home)


def test_a_flow_from_a_terminal_is_on_the_desk_that_is_up(tmp_path: Path) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    from flows.server import server_for_this_run

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    home = tmp_path / "desk"
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server, keeping(home):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        write_state(home, address, {}, {})
        with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults={PREFECT_API_URL}):
            with server_for_this_run() as api:
                assert api == PREFECT_API_URL.value() == f"{address}/api"
            assert PREFECT_API_URL.value() is None
        server.shutdown()
    assert not running_desk(home)  # nobody keeps it any more


@pytest.mark.parametrize("change", ["redis", "services", "database", "password", "other code"])
def test_a_process_that_was_started_otherwise_does_not_agree(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the change is that a variable is no longer there."""
    for name in [name for name in os.environ if name.startswith(("PREFECT_", "LONGHAUL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LONGHAUL_DATABASE_URL", "postgresql://me@one.example.org/db")
    monkeypatch.setenv("LONGHAUL_REDIS_URL", "redis://one.example.org")
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "me:password")

    def server(**settings: Any) -> Part:
        return parts_of(DeskSettings.model_validate({"database": "postgresql", "redis": True, **settings}))[0]

    before = server(parts=["server"] if change == "services" else ["server", "services"])
    child = subprocess.Popen([sys.executable, "-c", "input()"], env=before.environment, stdin=subprocess.PIPE)
    try:
        process = Process.of(child.pid)
        assert process
        wait_for(lambda: has_variables(process, before.own))  # a copy of this one at first
        if change == "database":
            monkeypatch.setenv("LONGHAUL_DATABASE_URL", "postgresql://me@two.example.org/db")
        if change == "password":
            monkeypatch.delenv("PREFECT_SERVER_API_AUTH_STRING")
        if change == "other code":
            monkeypatch.setattr(parts, "code_version", lambda: "other")
        after = server(parts=["server", "services"], redis=change != "redis")
        assert not has_variables(process, after.own)
    finally:
        child.kill()
        child.communicate()
