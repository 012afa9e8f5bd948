"""Which end a run gets whose processes were brought down with the desk."""

from typing import Any

import pytest

from flows.desk.client import Client, ServerError
from flows.desk.processes.stopping import _mark_stopped


class Server(Client):
    """Knows one run, in a state."""

    def __init__(self, state: str) -> None:
        self.state, self.marks = state, list[dict[str, Any]]()

    def get(self, path: str) -> Any:
        if not self.state:
            raise ServerError("nobody there")
        return {"state": {"type": self.state}}

    def post(self, path: str, body: Any = None) -> Any:
        self.marks.append(body)


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        ("RUNNING", ["CRASHED"]),
        ("PENDING", ["CRASHED"]),
        ("CRASHED", ["CRASHED"]),  # the run has said so itself, and not why
        ("CANCELLING", ["CANCELLED"]),
        *((state, []) for state in ("COMPLETED", "FAILED", "CANCELLED")),
    ],
)
def test_a_run_ends_as_it_was_to_end(state: str, ends: list[str]) -> None:
    server, said = Server(state), list[str]()
    _mark_stopped(server, "run", said.append)
    assert [mark["state"]["type"] for mark in server.marks] == ends and not said
    assert all(mark["state"]["message"] == "the desk was stopped" and mark["force"] for mark in server.marks)


def test_a_server_that_is_away_is_told_of() -> None:
    said: list[str] = []
    _mark_stopped(Server(""), "run", said.append)
    assert "could not be marked crashed" in said[0]
