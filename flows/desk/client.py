"""The few requests to a Prefect server that the desk makes without importing Prefect."""

import base64
import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, build_opener

from flows.desk.settings import CLIENT_AUTH
from flows.serving import DIRECT

REQUEST_SECONDS = 10.0
LOOPBACK = ("http://127.", "http://[::1]", "http://localhost")


class ServerError(RuntimeError):
    """The server cannot be reached, or has refused; `status` is that of HTTP, 0 where there was no answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Client:
    """Requests to the API at `url`, with the authorisation that `environment` holds."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        self.url = url
        self._headers = {"Content-Type": "application/json"}
        if auth := environment.get(CLIENT_AUTH):
            self._headers["Authorization"] = "Basic " + base64.b64encode(auth.encode()).decode()
        self._opener = DIRECT if url.startswith(LOOPBACK) else build_opener()

    def get(self, path: str) -> Any:
        return self._ask("GET", path)

    def post(self, path: str, body: Any = None) -> Any:
        return self._ask("POST", path, body)

    def exists(self, path: str) -> bool:
        """Whether there is something at a path; False where the server cannot be reached too."""
        try:
            self.get(path)
        except ServerError:
            return False
        return True

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method == "GET" else json.dumps(body).encode()
        request = Request(f"{self.url}{path}", data=data, method=method, headers=self._headers)
        try:
            with self._opener.open(request, timeout=REQUEST_SECONDS) as response:
                text = response.read()
            return json.loads(text) if text else None
        except HTTPError as error:
            raise ServerError(f"{method} {path}: {error.code} {_said(error)}", error.code) from None
        except (OSError, HTTPException) as error:
            raise ServerError(f"{method} {self.url}{path}: {error}") from None
        except ValueError:
            raise ServerError(f"{method} {self.url}{path}: what answers is no Prefect server") from None


def _said(error: HTTPError) -> str:
    try:
        return error.read(2000).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return ""
