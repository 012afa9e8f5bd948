"""One desk of cheap stand-ins that is killed in earnest."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.desk.processes.parts import part_played
from flows.desk.processes.process import of_desk
from flows.desk.processes.state import keeper_of
from flows.serving import is_healthy
from tests.services.process import free_port

REPOSITORY = Path(__file__).parents[4]


class StandIns:
    """A desk in `folder` whose server and worker are cheap stand-ins for Prefect's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "prefect" / "desk"
        self.port = free_port()
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
    with socket.socket() as taken:  # a port at which the server could not be started ends nothing that runs
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert desk.keep(f"port={taken.getsockname()[1]}").wait(120) == 2
    left = desk.pids()
    assert all(left[name] == third[name] for name in ("server", "worker", "flow"))
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
