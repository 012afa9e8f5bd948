"""A Prefect server's API as its UI uses it: plain HTTP, nothing of Prefect's client in between.

A server that is away, as it is when it was killed, is waited for.
"""

import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

import httpx

POLL_SECONDS = 0.25
PATIENCE_SECONDS = 90.0
FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", "CRASHED"})
PAGE = 200

Object = dict[str, Any]


class Api:
    """`url` ends with /api. Every call raises TimeoutError where the server does not come back, and httpx's error where
    it says no."""

    def __init__(self, url: str, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.url = url
        self._patience_seconds = patience_seconds
        self._client = httpx.Client(base_url=url, timeout=30.0)

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """What the server answers. A call may be made twice, if its first answer was lost."""
        until = time.monotonic() + self._patience_seconds
        while True:
            try:
                answer = self._client.request(method, path, json=body)
                if answer.status_code not in (502, 503):
                    break
            except httpx.TransportError as error:
                if time.monotonic() > until:
                    raise TimeoutError(f"no answer from {self.url}: {error}") from None
            time.sleep(POLL_SECONDS)
        if answer.is_error:
            raise httpx.HTTPStatusError(f"{method} {path}: {answer.text}", request=answer.request, response=answer)
        return answer.json() if answer.content else None

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self.call("POST", path, body or {})

    def is_healthy(self) -> bool:
        """Whether the server answers now."""
        try:
            return self._client.get("/health", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def deployment(self, name: str) -> Object:
        """By FLOW/NAME."""
        return self.get(f"/deployments/name/{name}")

    def start(self, deployment: str, parameters: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """Id of a new run of a deployment; `parameters` over its own, as from its form. Made once, however often it has
        to be asked for."""
        body = {
            "parameters": dict(parameters or {}),
            "state": {"type": "SCHEDULED"},
            "idempotency_key": uuid.uuid4().hex,
            **fields,
        }
        return self.post(f"/deployments/{self.deployment(deployment)['id']}/create_flow_run", body)["id"]

    def run(self, run: str) -> Object:
        """A flow run; its state is in `state`, with type, name and message."""
        return self.get(f"/flow_runs/{run}")

    def state(self, run: str) -> str:
        """The type of its state."""
        return self.run(run)["state_type"]

    def states(self, run: str) -> list[Object]:
        """All that it has had, oldest first."""
        found = self.get(f"/flow_run_states/?flow_run_id={run}")
        return sorted(found, key=lambda state: state["timestamp"])

    def set_state(self, run: str, state: str, name: str = "", *, message: str = "") -> str:
        """What the server says to it: ACCEPT, REJECT, ABORT or WAIT. Never forced."""
        wanted = {"type": state, "name": name or None, "message": message or None}
        return self.post(f"/flow_runs/{run}/set_state", {"state": wanted, "force": False})["status"]

    def cancel(self, run: str) -> str:
        """As the button of the UI does it."""
        return self.set_state(run, "CANCELLING", "Cancelling")

    def retry(self, run: str) -> str:
        """As the button of the UI does it."""
        return self.set_state(run, "SCHEDULED", "AwaitingRetry", message="Retry from the UI")

    def wait(self, run: str, states: Collection[str] = FINAL, *, seconds: float) -> Object:
        """The run, once its state is of one of these types. Raises TimeoutError with what it did instead."""
        found: list[Object] = []

        def is_there() -> bool:
            found[:] = [self.run(run)]
            return found[0]["state_type"] in states

        wait_for(is_there, seconds, lambda: f"{run} is {found[0]['state']} instead of {sorted(states)}")
        return found[0]

    def runs(self, **filters: Any) -> list[Object]:
        """Flow runs, oldest first; `filters`: flows, flow_runs, deployments, … as the API takes them."""
        return self._all("/flow_runs/filter", filters, sort="EXPECTED_START_TIME_ASC")

    def task_runs(self, run: str) -> list[Object]:
        return self._all("/task_runs/filter", {"task_runs": {"flow_run_id": {"any_": [run]}}})

    def logs(self, run: str) -> list[str]:
        lines = self._all("/logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}}, sort="TIMESTAMP_ASC")
        return [line["message"] for line in lines]

    def artifacts(self, run: str) -> list[Object]:
        return self._all("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})

    def events(self, *names: str, prefixes: Collection[str] = ()) -> list[Object]:
        """Events of these names, or whose names begin so, oldest first; at most a page of them."""
        chosen = {"name": list(names)} if names else {"prefix": list(prefixes)}
        body = {"filter": {"event": chosen, "order": "ASC"}, "limit": PAGE // 4}
        answer = self.post("/events/filter", body)
        found: list[Object] = answer["events"]
        while answer["next_page"] and len(found) < 10 * PAGE:
            answer = self.get(answer["next_page"])
            found += answer["events"]
        return found

    def automations(self) -> list[Object]:
        return self._all("/automations/filter", {})

    def _all(self, path: str, filters: Mapping[str, Any], **fields: Any) -> list[Object]:
        found: list[Object] = []
        while True:
            page = self.post(path, {**filters, **fields, "limit": PAGE, "offset": len(found)})
            found += page
            if len(page) < PAGE:
                return found


def wait_for(is_there: Callable[[], object], seconds: float, otherwise: Callable[[], str] | str) -> float:
    """Seconds until `is_there()` holds. Raises TimeoutError, with what `otherwise` says."""
    began = time.monotonic()
    while not is_there():
        if time.monotonic() - began > seconds:
            what = otherwise if isinstance(otherwise, str) else otherwise()
            raise TimeoutError(f"not after {seconds:.0f} s: {what}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began
