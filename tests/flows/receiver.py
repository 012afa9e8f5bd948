"""A webhook receiver on loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """What has been received, oldest first; it answers the next `refuses` requests with an error."""

    url: str = ""
    refuses: int = 0
    refused: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)

    @property
    def told(self) -> list[tuple[str, str]]:
        """(state, kind) of each."""
        return [(body["state"], body["kind"]) for body in self.bodies]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.refuses > 0:
                receiver.refuses -= 1
                receiver.refused += 1
                self.send_response(503)
            else:
                receiver.bodies.append(json.loads(body))
                self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing in the output of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
