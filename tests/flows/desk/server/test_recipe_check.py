"""What a user who submits a form is told of a recipe that cannot be valid, and that nothing else is touched."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import httpx
import pytest
from prefect import Flow, flow
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from data.errors import InputError
from flows import evaluation, pipeline, single_stage
from flows.desk.server import recipe_check
from flows.desk.server.recipe_check import MOST_BYTES, RecipeCheck
from stages.recipe import load, parse
from tests.end_to_end.shell import TINY
from tests.flows.form import as_json

ID = "12345678-1234-1234-1234-123456789abc"
TABLES = load(TINY).tables()
BAD = {**TABLES, "pretrain": {**TABLES["pretrain"], "num_processes": 9, "threads": 1}}
CROSS_FIELD = "pretrain.num_processes = 9 is more than pretrain.batch_sequences, 8"


@flow(name="foreign")
def foreign(recipe: dict[str, Any]) -> None:
    """Somebody else's."""


class Patient(httpx.HTTPTransport):
    """Asks again where the server says that its database was busy, as Prefect's own client does."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(60):
            answer = super().handle_request(request)
            if answer.status_code != 503:
                break
            answer.close()
            time.sleep(0.5)
        return answer


class Deployed:
    """Deployments on the server, and what it answers."""

    def __init__(self, api: str) -> None:
        self.http = httpx.Client(base_url=api, timeout=60, transport=Patient())
        asyncio.run(self._create())

    async def _create(self) -> None:
        parameters = {"recipe": TABLES}
        async with get_client() as client:

            async def create(flow: Flow[..., Any], tags: list[str], **more: Any) -> str:
                made = await client.create_deployment(
                    await client.create_flow(flow),
                    "checked",
                    parameters={**parameters, **more},
                    parameter_openapi_schema=flow.parameters.model_dump(),
                    enforce_parameter_schema=True,
                    tags=tags,
                )
                return str(made)

            self.pipeline = await create(pipeline.pipeline, ["longhaul", "x"])
            self.stage = await create(single_stage.single_stage, ["longhaul"], stage="curate")
            self.regression = await create(evaluation.regression, ["longhaul"])
            self.foreign = await create(foreign, [])

    def start(self, deployment: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/deployments/{deployment}/create_flow_run", json=body)

    def runs(self) -> int:
        return int(self.http.post("/flow_runs/count", json={}).json())

    def parameters(self, deployment: str) -> Any:
        return self.http.get(f"/deployments/{deployment}").json()["parameters"]


@pytest.fixture(scope="module")
def deployed(server: str) -> Iterator[Deployed]:
    with temporary_settings({PREFECT_API_URL: server, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        made = Deployed(server)
        yield made
        made.http.close()


def told(answer: httpx.Response) -> str:
    """What the UI shows of a refusal."""
    assert answer.status_code == 409, answer.text
    detail = answer.json()["detail"]
    assert "pydantic" not in detail and "ValidationError" not in detail
    return str(detail)


def changed(table: str, **fields: Any) -> dict[str, Any]:
    return {**TABLES, table: {**TABLES.get(table, {}), **fields}}


def test_a_recipe_that_cannot_be_valid_starts_no_run(deployed: Deployed) -> None:
    before = deployed.runs()
    for recipe, words in (
        (BAD, CROSS_FIELD),
        (changed("pretrain", num_steps=0), "pretrain.num_steps: Input should be greater than or equal to 1, got 0"),
        (changed("pretrain", num_step=5), "pretrain.num_step: unknown key; did you mean num_steps?"),
        (changed("curate", sources=[{"kind": "jsonl"}]), "a source of kind jsonl needs domain and path"),
        (changed("pretrain", mixture=as_json({"code": -1})), "pretrain.mixture: weights must be above 0"),
        ({}, "name: missing, and it has no default"),
    ):
        assert words in told(deployed.start(deployed.pipeline, parameters={"recipe": recipe}))
    both = changed("pretrain", num_steps=0, warmup_ratio=2)
    assert told(deployed.start(deployed.regression, parameters={"recipe": both})).count("\n") == 2
    sources = [{"kind": "text", "path": f"corpus/{number:05}.txt", "domain": "x"} for number in range(10_000)]
    large = {"recipe": changed("curate", sources=sources)}
    assert "recipe.curate.sources alone is" in told(deployed.start(deployed.pipeline, parameters=large))
    wrong = {"stage": "evaluate", "inputs": as_json({"modle": "0123"})}
    assert told(deployed.start(deployed.stage, parameters=wrong)).startswith("inputs.modle: evaluate takes model")
    bulk = f"/deployments/{deployed.pipeline}/create_flow_run/bulk"
    assert CROSS_FIELD in told(deployed.http.post(bulk, json=[{}, {"parameters": {"recipe": BAD}}]))
    content = json.dumps({"parameters": {"recipe": changed("pretrain", learning_rate=float("nan"))}})
    told_of = told(deployed.http.post(f"/deployments/{deployed.pipeline}/create_flow_run", content=content))
    assert told_of.startswith("recipe.pretrain.learning_rate: must be a finite number")
    assert deployed.runs() == before


def test_what_is_valid_or_not_ours_is_answered_by_prefect(deployed: Deployed) -> None:
    answer = deployed.start(deployed.pipeline, parameters={"recipe": changed("pretrain", num_steps=30)})
    assert answer.status_code == 201, answer.text
    assert parse(answer.json()["parameters"]["recipe"]) == load(TINY, ["pretrain.num_steps=30"])
    assert deployed.start(deployed.stage).status_code == 201
    assert deployed.start(deployed.foreign, parameters={"recipe": {"a": 1}}).status_code == 201
    refused = deployed.start(deployed.pipeline, parameters={"root": 5})
    assert "'root'" in told(refused), "types of the other parameters are Prefect's to check"
    assert deployed.start(ID).status_code == 404
    assert deployed.http.post(f"/deployments/{deployed.pipeline}/create_flow_run", content="{").status_code == 422
    assert deployed.http.post("/deployments/filter", json={"limit": 1}).status_code == 200


def test_a_schedule_and_a_deployment_take_no_bad_recipe_either(deployed: Deployed) -> None:
    place = f"/deployments/{deployed.regression}"
    cron = {"schedule": {"cron": "0 3 1 1 *", "timezone": "UTC"}, "active": False}
    bad = {"recipe": BAD}
    assert CROSS_FIELD in told(deployed.http.post(f"{place}/schedules", json=[{**cron, "parameters": bad}]))
    made = deployed.http.post(f"{place}/schedules", json=[{**cron, "parameters": {"models": ["0123"]}}])
    assert made.status_code == 201, made.text
    schedule = f"{place}/schedules/{made.json()[0]['id']}"
    assert CROSS_FIELD in told(deployed.http.patch(schedule, json={"parameters": bad}))
    assert deployed.http.patch(schedule, json={"active": False}).status_code == 204
    assert CROSS_FIELD in told(deployed.http.patch(place, json={"parameters": bad}))
    assert deployed.parameters(deployed.regression) == {"recipe": TABLES}
    assert deployed.http.patch(place, json={"description": "by night"}).status_code == 204
    assert deployed.http.patch(place, json={"parameters": {"recipe": changed("plan", step_seconds=2)}}).is_success
    body = {"name": "new", "tags": ["longhaul"], "parameters": bad}
    flow_id = deployed.http.get(place).json()["flow_id"]
    assert CROSS_FIELD in told(deployed.http.post("/deployments/", json={**body, "flow_id": flow_id}))
    assert deployed.http.post("/deployments/", json={**body, "tags": [], "flow_id": flow_id}).is_success


def test_a_run_that_came_by_another_way_fails_with_the_same_words_before_any_stage(deployed: Deployed) -> None:
    for given, words in (({"recipe": BAD}, CROSS_FIELD), ({"recipe": TABLES, "root": 5}, "root: Input should be")):
        state: Any = asyncio.run(pipeline.pipeline(**given, return_state=True))
        assert state.is_failed() and words in state.message and "pydantic" not in state.message
        with pytest.raises(InputError, match="not"):
            asyncio.run(state.aresult())
    newest = {"sort": "START_TIME_DESC", "limit": 1, "flow_runs": {"deployment_id": {"is_null_": True}}}
    (run,) = deployed.http.post("/flow_runs/filter", json=newest).json()
    assert (run["name"], run["state_type"], run["run_count"]) == ("tiny", "FAILED", 1)
    tasks = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    assert deployed.http.post("/task_runs/filter", json=tasks).json() == []


class Behind:
    """An application that shows one deployment, and keeps what else reaches it."""

    def __init__(self, deployment: dict[str, Any] | None) -> None:
        self.deployment = deployment
        self.asked: list[Any] = []
        self.reached: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("method") == "GET":
            self.asked.append(scope)
            body = json.dumps(self.deployment).encode()
            await send({"type": "http.response.start", "status": 200 if self.deployment else 404, "headers": []})
            await send({"type": "http.response.body", "body": body[:9], "more_body": True})
            await send({"type": "http.response.body", "body": body[9:]})
            return
        messages = []
        if scope["type"] == "http":
            while True:
                messages.append(await receive())
                if not messages[-1].get("more_body"):
                    break
        self.reached.append((scope, receive, send, messages))

    def request(self, *bodies: bytes, **scope: Any) -> list[Any]:
        """What is answered by the check itself."""
        sent: list[Any] = []
        chunks = [{"type": "http.request", "body": body, "more_body": True} for body in bodies]
        chunks[-1]["more_body"] = False
        waiting = iter([*chunks, {"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(waiting)

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", b"Basic x"), (b"content-length", b"9"), (b"accept-encoding", b"gzip")]
        path = f"/api/deployments/{ID}/create_flow_run"
        whole = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b"", **scope}
        asyncio.run(RecipeCheck(self)(whole, receive, send))
        return sent


OURS = {"tags": ["longhaul"], "parameters": {"recipe": TABLES}}
REFUSED = json.dumps({"parameters": {"recipe": BAD}}).encode()


def test_a_request_is_read_in_pieces_and_asked_about_by_who_sent_it() -> None:
    behind = Behind(OURS)
    start, body = behind.request(REFUSED[:7], REFUSED[7:])
    assert start["status"] == 409 and CROSS_FIELD in json.loads(body["body"])["detail"] and behind.reached == []
    (asked,) = behind.asked
    assert (asked["path"], asked["headers"]) == (f"/api/deployments/{ID}", [(b"authorization", b"Basic x")])


def test_a_refusal_is_short() -> None:
    recipe = changed("curate", sources=[{"kind": "jsonl"}] * 1000)
    _, body = Behind(OURS).request(json.dumps({"parameters": {"recipe": recipe}}).encode())
    *_, last = json.loads(body["body"])["detail"].splitlines()
    assert last == "  and 981 more"


@pytest.mark.parametrize(
    ("deployment", "bodies"),
    [
        (OURS, (b'{"parame', b'ters": {}}')),
        (OURS, (b"not json",)),
        (OURS, (json.dumps({"parameters": {"recipe": {"__prefect_kind": "jinja", "template": "{{ x }}"}}}).encode(),)),
        (OURS, (json.dumps({"parameters": {"recipe": {"__prefect_kind": "json", "value": "{"}}}).encode(),)),
        (OURS, (b" " * MOST_BYTES, REFUSED)),
        ({"tags": [], "parameters": {}}, (REFUSED,)),
        ({"tags": ["longhaul"], "parameters": {"a": 1}}, (b"{}",)),
        (None, (REFUSED,)),
    ],
    ids=["valid", "no JSON", "a template", "no JSON in JSON", "too long", "not ours", "no recipe", "unknown"],
)
def test_what_passes_on_is_what_came(deployment: Any, bodies: tuple[bytes, ...]) -> None:
    behind = Behind(deployment)
    assert behind.request(*bodies) == []
    ((_, _, _, messages),) = behind.reached
    assert [each["body"] for each in messages] == list(bodies)


def test_a_fault_of_the_check_keeps_nothing_from_prefect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(recipe_check, "parse", broken)
    behind = Behind(OURS)
    assert behind.request(REFUSED) == [] and len(behind.reached) == 1
    assert "parameters were not checked" in caplog.text and "a fault" in caplog.text


@pytest.mark.parametrize(
    "scope",
    [
        {"type": "websocket", "path": "/api/events/in"},
        {"type": "lifespan"},
        {"type": "http", "method": "GET", "path": f"/api/deployments/{ID}"},
        {"type": "http", "method": "POST", "path": "/api/deployments/filter"},
        {"type": "http", "method": "POST", "path": "/api/flow_runs/"},
        {"type": "http", "method": "DELETE", "path": f"/api/deployments/{ID}"},
        {"type": "http", "method": "POST", "path": f"/api/deployments/{ID}/create_flow_run/x"},
    ],
    ids=lambda scope: f"{scope['type']} {scope.get('method', '')} {scope.get('path', '')}",
)
def test_everything_else_passes_untouched(scope: dict[str, Any]) -> None:
    """The very objects: what streams goes on streaming."""
    reached: list[Any] = []

    async def app(*given: Any) -> None:
        reached.extend(given)

    async def receive() -> Any: ...

    async def send(message: Any) -> None: ...

    asyncio.run(RecipeCheck(app)(scope, receive, send))
    assert reached[0] is scope and reached[1] is receive and reached[2] is send
