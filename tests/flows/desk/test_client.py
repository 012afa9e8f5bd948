"""What does not answer as a Prefect server does is an error that whoever asks can live with."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flows.desk.client import Client, ServerError


class Stranger(BaseHTTPRequestHandler):
    """Says yes to everything, in another language."""

    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/gone" else 200)
        self.end_headers()
        if self.path != "/empty":
            self.wfile.write(b"<html>welcome</html>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[Client]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Client(f"http://127.0.0.1:{server.server_port}", {})
        server.shutdown()


def test_an_answer_that_is_no_json_is_an_error_of_the_server(stranger: Client) -> None:
    with pytest.raises(ServerError, match="no Prefect server"):
        stranger.get("/work_pools/longhaul")
    assert not stranger.exists("/work_pools/longhaul")
    assert stranger.get("/empty") is None


def test_a_refusal_has_its_status_and_its_words(stranger: Client) -> None:
    with pytest.raises(ServerError, match="404 <html>") as refusal:
        stranger.get("/gone")
    assert refusal.value.status == 404


def test_nobody_there_is_an_error_without_a_status() -> None:
    with pytest.raises(ServerError) as failure:
        Client("http://127.0.0.1:9", {}).get("/health")  # nobody listens on the discard port
    assert failure.value.status == 0
