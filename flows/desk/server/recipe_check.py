"""A recipe that cannot be valid is refused when a run is created, in words, instead of minutes later in a failed run.

`RecipeCheck` wraps the ASGI application of a Prefect server. It looks at the requests by which the UI, its API and
`prefect deploy` give parameters to our deployments: new runs, schedules, and changes of a deployment. What a trigger
fills in does not come by here, and is checked by the flow itself.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import suppress
from typing import Any

from data.errors import InputError
from flows.desk.names import TAG
from flows.parameters import RECIPE, require_inputs, require_json
from stages.recipe import STAGES, parse

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Json = dict[str, Any]

CONFLICT = 409  # how Prefect answers parameters that do not fit the schema; its UI shows the detail
MOST_BYTES = 8_000_000  # a larger body is Prefect's to refuse
ID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
PLACES = re.compile(rf"/deployments(?:/|/(?P<id>{ID})(?P<what>/create_flow_run(?:/bulk)?|/schedules(?:/{ID})?)?/?)")
MOST_LINES = 20  # of a refusal
CHOICES = tuple(STAGES)
MADE = ("/create_flow_run", "/create_flow_run/bulk", "/schedules")
logger = logging.getLogger(__name__)


class RecipeCheck:
    """Passes on everything but what would start, schedule or change one of our deployments with parameters that its
    flow refuses: that is answered as Prefect answers parameters that do not fit the schema. A fault in here never
    keeps a request from Prefect."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = _place(scope)
        if place is None:
            return await self._app(scope, receive, send)
        messages, body = await _read(receive)
        fault = ""
        try:
            if body is not None:
                fault = await self._fault(scope, place, json.loads(body))
        except Exception:
            logger.exception("parameters were not checked: %s %s", scope["method"], scope["path"])
        if fault:
            return await _refuse(send, fault)
        await self._app(scope, _again(messages, receive), send)

    async def _fault(self, scope: Scope, place: re.Match[str], body: Any) -> str:
        """What is wrong with the parameters that a request would set; empty: nothing."""
        deployment = body if place["id"] is None else await self._deployment(scope, place)
        if deployment is None or TAG not in (deployment.get("tags") or ()):
            return ""
        for parameters in _set(place, body, deployment.get("parameters") or {}):
            with suppress(_Unknown):
                try:
                    check(_filled_in(parameters))
                except InputError as error:
                    return _short(str(error))
        return ""

    async def _deployment(self, scope: Scope, place: re.Match[str]) -> Json | None:
        """The deployment, as the server itself shows it to whoever asks; None if it does not."""
        path = scope["path"][: place.start()] + f"/deployments/{place['id']}"
        headers = [each for each in scope["headers"] if not each[0].lower().startswith((b"content-", b"accept-"))]
        asked = {**scope, "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "state": {}}
        answer: list[Message] = []

        async def nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def keep(message: Message) -> None:
            answer.append(message)

        await self._app({**asked, "headers": headers}, nothing, keep)
        if answer[0]["status"] != 200:
            return None
        found: Json = json.loads(b"".join(each.get("body", b"") for each in answer[1:]))
        return found


def check(parameters: Json) -> None:
    """Raises InputError for parameters that the flow would refuse, in the same words. Types of all but the recipe are
    left to Prefect, which checks them against the schema."""
    if RECIPE not in parameters:
        return
    require_json(parameters)
    parse(parameters[RECIPE], "this run")
    stage, inputs = parameters.get("stage"), parameters.get("inputs")
    if stage in CHOICES and isinstance(inputs, dict):
        require_inputs(stage, inputs)


def _short(text: str) -> str:
    """Not the same fault of ten thousand sources."""
    lines = text.splitlines()
    more = [f"  and {len(lines) - MOST_LINES:,} more"] if len(lines) > MOST_LINES else []
    return "\n".join(lines[:MOST_LINES] + more)


class _Unknown(Exception):
    """A value stands for another one that only Prefect can fill in."""


def _place(scope: Scope) -> re.Match[str] | None:
    """Where in the API a request would set parameters of a deployment."""
    if scope["type"] != "http" or scope["method"] not in ("POST", "PATCH"):
        return None
    path = scope["path"]
    place = PLACES.fullmatch(path, max(path.find("/deployments"), 0))
    if place is None:
        return None
    makes = place["id"] is None or place["what"] in MADE
    return place if scope["method"] == ("POST" if makes else "PATCH") else None


def _set(place: re.Match[str], body: Any, own: Json) -> Iterator[Json]:
    """The parameters that a run would have after a request, where it says anything of them. own: the deployment's."""
    if place["what"] is not None:
        for each in body if isinstance(body, list) else [body]:
            if each.get("parameters") is not None or "create_flow_run" in place["what"]:
                yield {**own, **(each.get("parameters") or {})}
        return
    if body.get("parameters") is not None:
        own = body["parameters"]
        yield own
    for each in body.get("schedules") or ():
        if each.get("parameters"):
            yield {**own, **each["parameters"]}


def _filled_in(parameters: Json) -> Json:
    """What Prefect makes of values that its form writes as JSON. Raises _Unknown for templates and variables."""
    from prefect.utilities.schema_tools.hydration import HydrationContext, Placeholder, hydrate

    def require_values(value: Any) -> None:
        if isinstance(value, Placeholder):
            raise _Unknown
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            require_values(each)

    filled = hydrate(parameters, HydrationContext())
    require_values(filled)
    return filled


async def _read(receive: Receive) -> tuple[list[Message], bytes | None]:
    """The messages of a request's body, and the body; None if it is cut off or too long to be looked at."""
    messages: list[Message] = []
    size = 0
    while True:
        messages.append(message := await receive())
        size += len(message.get("body", b""))
        if message["type"] != "http.request" or size > MOST_BYTES:
            return messages, None
        if not message.get("more_body", False):
            return messages, b"".join(each.get("body", b"") for each in messages)


def _again(messages: list[Message], receive: Receive) -> Receive:
    """What was read already, and then what comes."""
    left = iter(messages)

    async def next_message() -> Message:
        for message in left:
            return message
        return await receive()

    return next_message


async def _refuse(send: Send, fault: str) -> None:
    body = json.dumps({"detail": fault}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": CONFLICT, "headers": headers})
    await send({"type": "http.response.body", "body": body})
