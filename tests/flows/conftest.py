"""A server of the desk for the tests of the flows."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import httpx
import pytest
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_HOME,
    temporary_settings,
)

from flows.process import die_with_parent
from flows.serving import SERVER_ENVIRONMENT, is_healthy, server_command

START_SECONDS = 180
TICK = "PT0.5S"  # between two looks of the server for what did not happen
FLUSH_SECONDS = 0.2  # after which an event can be read


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of its API. It is empty at first, and one for all modules that pytest runs in this process."""
    home = tmp_path_factory.mktemp("prefect")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    environment = {
        **os.environ,
        **SERVER_ENVIRONMENT,
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": url,
        "PREFECT_UI_API_URL": url,
        "PREFECT_SERVER_EVENTS_PROACTIVE_GRANULARITY": TICK,
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": str(FLUSH_SECONDS),
    }
    with open(home / "server.log", "wb") as output:
        process = subprocess.Popen(
            server_command("flows.desk.server.app:create_app", "127.0.0.1", port, log_level="error"),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_healthy(url):
            assert process.poll() is None and time.monotonic() < deadline, (home / "server.log").read_text()[-4000:]
            time.sleep(0.2)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def api(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server as that of this test."""
    home = tmp_path_factory.mktemp("client")
    with temporary_settings({PREFECT_API_URL: server, PREFECT_HOME: home}):
        yield server


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[httpx.Client]:
    """The server as that of the flows that a module runs in this process, without their heartbeats: at its end a flow
    waits a second for the thread of those."""
    settings = temporary_settings({PREFECT_API_URL: server, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
    with settings, httpx.Client(base_url=server, timeout=60) as found:
        yield found
