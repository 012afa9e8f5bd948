"""Stands in for the server: answers what the keeper asks of Prefect's API, and writes down what it is told."""

import argparse
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = ("/api/health", "/api/work_pools/longhaul", "/api/flow_runs/11111111-2222-3333-4444-555555555555")
        self._answer(200 if self.path in known else 404, {"state": {"type": "RUNNING"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(Path(os.environ["STAND_IN_FOLDER"]) / "told.jsonl", "a") as file:
            file.write(json.dumps({"path": self.path, **body}) + "\n")
        self._answer(201, {"status": "ACCEPT"})

    def _answer(self, status: int, body: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    arguments, _ = parser.parse_known_args()
    ThreadingHTTPServer((arguments.host, arguments.port), Handler).serve_forever()
