"""With which variables the processes of a desk are started, and how one that was started otherwise is told."""

import os
import subprocess
import sys
from typing import Any

import pytest

from flows.desk.processes import parts
from flows.desk.processes.parts import Part, has_variables, parts_of
from flows.desk.processes.process import Process, wait_until
from flows.desk.settings import DeskSettings


def test_the_worker_is_started_without_what_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_DATABASE_URL", "postgresql://me:hidden@host/db")
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "me:password")
    monkeypatch.setenv("PREFECT_SERVER_ENCRYPTION_KEY", "hidden")
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


def test_a_server_beside_the_one_with_the_services_declares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would take away the notifications that its own file does not name."""
    monkeypatch.setenv("LONGHAUL_DATABASE_URL", "postgresql://me@one.example.org/db")
    monkeypatch.setenv("LONGHAUL_REDIS_URL", "redis://one.example.org")
    shared = {"database": "postgresql", "redis": True}
    for here, names in ((["server"], ["server"]), (["server", "services"], ["server", "provision"])):
        parts = parts_of(DeskSettings.model_validate({**shared, "parts": here}), provision=True)
        assert [part.name for part in parts] == names


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
        assert wait_until(lambda: has_variables(process, before.own), 60)  # a copy of this one at first
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
