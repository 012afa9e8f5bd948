"""The doctor names what is wrong, with what to do about it, and finds nothing where nothing is."""

import importlib.metadata
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from flows.desk.client import Client, ServerError
from flows.desk.doctor import doctor
from flows.desk.doctor.doctor import examine, of_machine, of_server
from flows.desk.doctor.findings import Finding, Level
from flows.desk.names import worker_name
from flows.desk.processes.parts import parts_of
from flows.desk.processes.state import keeping, write_state
from flows.desk.settings import DeskSettings, desk_home
from stages.errors import BAD_INPUT

SETTINGS = DeskSettings(port=4419, disk_least_share=0.0, disk_least_bytes=0)


@pytest.fixture(autouse=True)
def _shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("PREFECT_", "LONGHAUL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))


class Server(Client):
    """Answers from a table; an error in it is raised."""

    def __init__(self, **changes: Any) -> None:
        queue = {"is_paused": False, "concurrency_limit": 1}
        self.answers: dict[str, Any] = {
            "/admin/version": importlib.metadata.version("prefect"),
            "/ready": {"message": "OK"},
            "/admin/settings": {"server": {"analytics_enabled": False}},
            "/work_pools/longhaul": {"is_paused": False},
            "/work_pools/longhaul/queues/filter": [{"name": name, **queue} for name in ("training", "evaluation")],
            "/work_pools/longhaul/workers/filter": [{"name": worker_name(), "status": "ONLINE"}],
            "RUNNING": [],
            "Late": [],
        } | changes

    def get(self, path: str) -> Any:
        return self.post(path)

    def post(self, path: str, body: Any = None) -> Any:
        if path == "/flow_runs/filter":
            path = "Late" if "name" in body["flow_runs"]["state"] else "RUNNING"
        answer = self.answers[path]
        if isinstance(answer, ServerError):
            raise answer
        return answer


def troubles(found: Iterator[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.level is not Level.OK]


def test_a_server_that_is_as_it_should_be_has_no_trouble() -> None:
    found = list(of_server(SETTINGS, Server()))
    assert not troubles(iter(found))
    assert {finding.subject for finding in found} >= {"server", "database", "telemetry", "pool", "heartbeat", "runs"}


RUN = {"name": "able-ape", "id": str(uuid.uuid4())}  # no process on this machine runs it
QUEUES = "/work_pools/longhaul/queues/filter"


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({"/admin/version": "3.0.0"}, Level.WARN, "Prefect 3.0.0"),
        ({"/ready": ServerError("503", 503)}, Level.FAIL, "database: does not answer"),
        ({"/admin/settings": {"server": {"analytics_enabled": True}}}, Level.WARN, "telemetry"),
        ({"/work_pools/longhaul": ServerError("404", 404)}, Level.FAIL, "there is no work pool longhaul"),
        ({"/work_pools/longhaul": {"is_paused": True}}, Level.FAIL, "is paused"),
        ({"/work_pools/longhaul/workers/filter": []}, Level.FAIL, "has not been heard of"),
        (
            {"/work_pools/longhaul/workers/filter": [{"name": worker_name(), "status": "OFFLINE"}]},
            Level.FAIL,
            "has not been heard of",
        ),
        ({"Late": [RUN]}, Level.WARN, "able-ape"),
        ({"RUNNING": [{**RUN, "labels": {"prefect.worker.name": worker_name()}}]}, Level.WARN, "able-ape"),
    ],
)
def test_each_trouble_of_a_server_is_named_with_a_fix(changes: dict[str, Any], level: Level, words: str) -> None:
    [finding] = troubles(of_server(SETTINGS, Server(**changes)))
    assert finding.level is level
    assert words in str(finding)
    assert finding.fix


@pytest.mark.parametrize(
    ("queue", "level"),
    [
        (None, Level.FAIL),
        ({"is_paused": True, "concurrency_limit": 1}, Level.FAIL),
        ({"is_paused": False, "concurrency_limit": 4}, Level.WARN),
        ({"is_paused": False, "concurrency_limit": None}, Level.WARN),
    ],
)
def test_a_queue_that_is_missing_paused_or_changed(queue: dict[str, Any] | None, level: Level) -> None:
    good = {"name": "training", "is_paused": False, "concurrency_limit": 1}
    queues = [good, *([{"name": "evaluation", **queue}] if queue else [])]
    [finding] = troubles(of_server(SETTINGS, Server(**{QUEUES: queues})))
    assert (finding.subject, finding.level) == ("queue evaluation", level)


def test_a_server_that_refuses_everything_is_one_trouble_each() -> None:
    refused = ServerError("401 Unauthorized", 401)
    server = Server()
    server.answers = {path: refused for path in server.answers}
    found = troubles(of_server(SETTINGS, server))
    assert found and all(finding.level is Level.FAIL and finding.fix for finding in found)


def test_a_run_elsewhere_is_not_missed_here() -> None:
    elsewhere = {**RUN, "labels": {"prefect.worker.name": "desk-of-another-machine"}}
    assert not troubles(of_server(SETTINGS, Server(RUNNING=[elsewhere])))


def machine_troubles(settings: DeskSettings = SETTINGS, **shell: str) -> dict[str, Finding]:
    return {finding.subject: finding for finding in troubles(of_machine(settings, shell))}


def test_a_desk_that_is_not_there() -> None:
    found = machine_troubles()
    assert {"keeper", "server", "worker", "watch"} == found.keys()
    assert "python -m flows.desk up" in found["keeper"].fix


def test_a_keeper_with_other_settings_and_a_part_that_ends_again_and_again(tmp_path: Path) -> None:
    """This process keeps the desk; a child plays the worker, as it would be started with the settings."""
    worker = next(part for part in parts_of(SETTINGS) if part.name == "worker")
    (tmp_path / "prefect.py").write_text("import signal; signal.pause()")
    home = desk_home()
    with keeping(home):
        child = subprocess.Popen(worker.command, env={**worker.environment, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
        try:
            write_state(home, "http://127.0.0.1:4419", {}, {"worker": 7})
            found = machine_troubles()
        finally:
            child.kill()
            child.wait()
    assert found["keeper"].level is Level.WARN and "other settings" in found["keeper"].text
    assert found["worker"].level is Level.WARN and "7 times" in found["worker"].text
    assert found["server"].level is Level.FAIL


def test_a_home_that_others_can_read() -> None:
    home = desk_home()
    with keeping(home):
        assert "home" not in machine_troubles(), "the desk makes it for its user alone"
        home.parent.chmod(0o750)
        assert "chmod 700" in machine_troubles()["home"].fix


def test_a_disk_that_is_full_and_a_secret_that_is_not_set() -> None:
    hook = {"type": "slack-webhook", "name": "ops", "secrets": {"url": "OPS_URL"}}
    settings = SETTINGS.model_validate({**SETTINGS.model_dump(), "disk_least_share": 0.999999, "blocks": [hook]})
    found = machine_troubles(settings)
    assert found["disk"].level is Level.FAIL
    assert "OPS_URL" in found["secrets"].text
    assert "secrets" not in machine_troubles(settings, OPS_URL="https://example.org/hidden")


def test_settings_that_cannot_be_end_the_examination() -> None:
    said: list[str] = []

    def load() -> DeskSettings:
        raise InputError("port: unknown key")

    assert examine(load, said.append) == BAD_INPUT
    assert any("port: unknown key" in text for text in said)
    assert said[-1] == "0 ok, 0 warn, 1 fail"


def test_a_package_or_a_variable_that_is_missing_is_named() -> None:
    said: list[str] = []
    assert examine(lambda: DeskSettings(database="postgresql"), said.append) == BAD_INPUT
    assert "LONGHAUL_DATABASE_URL" in said[0]


def test_no_server_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "of_machine", lambda settings, shell: iter(()))
    said: list[str] = []
    assert examine(lambda: SETTINGS, said.append) == BAD_INPUT
    assert "does not answer" in said[0]


def test_commands_that_a_terminal_waits_for_do_not_import_prefect() -> None:
    modules = "import sys, flows.desk.__main__, flows.desk.doctor.doctor"
    code = f"{modules}; print([name for name in ('prefect', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
