"""A Prefect server, with its UI, for a flow that runs from a terminal: that of the desk if it is up, else one for as
long as the flow runs, whose records stay in PREFECT_HOME.

The latter has a session of its own: Prefect's own temporary server dies of the same Ctrl-C as the flow, which then
waits for it for minutes. It ends with its parent, whatever ends that.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_HOME,
    PREFECT_UI_API_URL,
    temporary_settings,
)

from flows.desk.processes.state import running_desk
from flows.desk.settings import AUTH, DESK
from flows.process import die_with_parent
from flows.serving import SERVER_ENVIRONMENT, is_healthy, server_command
from stages.files import last_bytes

START_SECONDS = 120.0
STOP_SECONDS = 15.0
SEND_SECONDS = 5.0
POLL_SECONDS = 0.1
LOG_BYTES = 2000


@contextmanager
def server_for_this_run() -> Iterator[str]:
    """The address of the API: of the server that PREFECT_API_URL names, of the desk if it is up, or of a server that
    lives as long as this block."""
    if configured := PREFECT_API_URL.value():
        yield configured
        return
    home = Path(PREFECT_HOME.value())
    if desk := running_desk(home / DESK):
        auth = os.environ.get(AUTH) or PREFECT_API_AUTH_STRING.value()
        with temporary_settings({PREFECT_API_URL: desk, PREFECT_API_AUTH_STRING: auth}):
            yield desk
        return
    home.mkdir(parents=True, exist_ok=True)
    log = home / "embedded-server.log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            server_command("prefect.server.api.server:create_app", "127.0.0.1", port, log_level="error"),
            env={**os.environ, **SERVER_ENVIRONMENT, PREFECT_UI_API_URL.name: url},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
    try:
        _wait_until_healthy(process, url, log)
        send_what_is_left()
        with temporary_settings({PREFECT_API_URL: url}):
            try:
                yield url
            finally:
                send_what_is_left()
    finally:
        _stop(process)


def send_what_is_left() -> None:
    """Wait for a server to take the logs and events of this process; one that has gone is not waited for long. Prefect
    sends what comes later to the server that is set then: before, it stays with the one that was set at first."""
    for sender in (APILogWorker, EventsWorker):
        sender.drain_all(timeout=SEND_SECONDS, at_exit=False)


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if is_healthy(url):
            return
        time.sleep(POLL_SECONDS)
    said = last_bytes(log, LOG_BYTES).decode("utf-8", "replace")
    raise RuntimeError(f"the embedded Prefect server did not start; the end of {log}:\n{said}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
