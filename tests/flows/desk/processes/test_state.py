"""What a desk remembers of itself, and who asks for it."""

import errno
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flows.desk.processes.state import keeper_of, keeping, running_desk, write_state


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


def test_a_desk_that_has_not_said_where_it_is_runs_nowhere(tmp_path: Path) -> None:
    with keeping(tmp_path):
        assert running_desk(tmp_path) == ""


def test_a_disk_that_is_full_keeps_nobody_from_the_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that has lost its keeper could not be stopped."""

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_room)
    with keeping(tmp_path):
        assert keeper_of(tmp_path) is None
    monkeypatch.undo()
    with keeping(tmp_path):
        keeper = keeper_of(tmp_path)
        assert keeper and keeper.pid == os.getpid()
