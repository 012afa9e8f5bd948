"""A user relies on: whoever is to be told is told of each kind of trouble, in words and with a link; a run that is no
longer alive is marked crashed, and neither one that lives nor one that has ended is."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import pytest
from prefect import flow
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import BlockDocument, FlowRun, State, StateType
from prefect.events.schemas.events import Event, RelatedResource, Resource
from prefect.server.utilities.user_templates import render_user_template_sync

from flows.desk.names import HEARTBEAT
from flows.desk.objects.automations import TOLD, Told, _json, crash_zombies, plain, tell
from flows.desk.objects.blocks import keep_blocks
from flows.desk.settings import BlockSettings, DeskSettings
from tests.flows.mailbox import Mailbox, mailbox
from tests.flows.receiver import Receiver, receiving

LIMIT_SECONDS = 120
SILENCE_SECONDS = 10  # the least that Prefect takes
TAG = {"prefect.resource.id": "prefect.tag.longhaul", "prefect.resource.role": "tag"}


@flow(name="watched")
def watched() -> None:
    """Never runs; its runs are put into states by hand."""


def event(name: str, resource: str, payload: dict[str, Any], *related: dict[str, str]) -> Event:
    return Event(
        event=name,
        resource=Resource({"prefect.resource.id": resource}),
        related=[RelatedResource(each) for each in related],
        payload=payload,
    )


async def emit(client: PrefectClient, *events: Event) -> None:
    response = await client._client.post("/events", json=[each.model_dump(mode="json") for each in events])
    response.raise_for_status()


async def run_of(client: PrefectClient, name: str, tags: tuple[str, ...] = ("longhaul",)) -> FlowRun:
    made: FlowRun = await client.create_flow_run(watched, name=name, tags=tags, state=State(type=StateType.RUNNING))
    return made


@pytest.fixture
def webhook() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def mails() -> Iterator[Mailbox]:
    with mailbox() as box:
        yield box


def test_each_trouble_reaches_every_block_in_words(
    api: str, webhook: Receiver, mails: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_URL", webhook.url)
    server = {"host": "127.0.0.1", "port": mails.port, "security": "none"}
    people = {"sender": "desk@here", "recipients": ["ops@here"]}
    settings = DeskSettings(
        notify=("webhook/told", "email/told"),
        blocks=(
            BlockSettings(type="webhook", name="told", secrets={"url": "OPS_URL"}),
            BlockSettings(type="email", name="told", fields={**server, **people}),
        ),
    )

    async def story() -> tuple[FlowRun, FlowRun]:
        async with get_client() as client:
            assert (await keep_blocks(settings.blocks, client))[1] == []
            automations, problems = await tell(settings, client)
            assert len(automations) == len(TOLD) and problems == []
            made = [await client.create_automation(each) for each in automations]
            failing, theirs = await run_of(client, "night"), await run_of(client, "theirs", ())
            for run in (theirs, failing):
                state = State(type=StateType.FAILED, message='pretrain: "loss" is <NaN>\nat step 7')
                await client.set_flow_run_state(run.id, state, force=True)
            related = [
                {"prefect.resource.id": f"prefect.flow-run.{failing.id}", "prefect.resource.role": "flow-run"},
                {"prefect.resource.id": f"prefect.flow.{failing.flow_id}", "prefect.resource.role": "flow"},
            ]
            alert = {"title": "demo: regression", "text": "bracket got worse", "link": "http://here/run"}
            incident = {"time": 1.0, "stage": "pretrain", "kind": "incident", "reason": "spike", "step": 7}
            await emit(
                client,
                event("alert.raised", "longhaul.alert.demo", alert, *related),
                event("alert.resolved", "longhaul.alert.demo", {**alert, "title": "demo: recovered"}),
                event("incident", "longhaul.pretrain.incident", incident, *related),
                event("incident", "longhaul.pretrain.incident", incident, *related),  # in the pause after the first
                event("run.stalled", f"longhaul.run.{failing.id}", {"text": "silent since 12:00"}, related[0]),
                event("disk.low", "longhaul.disk.x", {"title": "disk: 3% free", "text": "3% of /data are free"}),
                event("export.refused", "longhaul.export.gguf", {"form": "gguf-q4", "increase": 0.2}, *related),
                event("alert.raised", "somebody.else", {"title": "not ours"}),
            )
            deadline = time.monotonic() + LIMIT_SECONDS
            while (len(webhook.bodies) < 7 or len(mails.messages) < 7) and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            for automation in made:
                await client.delete_automation(automation)
            return failing, theirs

    failing, _ = asyncio.run(story())
    site, found = api.removesuffix("/api"), {body["event"]: body for body in webhook.bodies}
    link = f"{site}/runs/flow-run/{failing.id}"
    told = {name: (body["title"], body["text"].strip(), body["link"]) for name, body in found.items()}
    assert told == {
        "prefect.flow-run.Failed": ("watched night: Failed", 'pretrain: "loss" is <NaN>\nat step 7', link),
        "alert.raised": ("demo: regression", "bracket got worse", "http://here/run"),
        "alert.resolved": ("demo: recovered", "bracket got worse", "http://here/run"),
        "incident": ("watched night: incident", "reason: spike\nstep: 7", link),
        "run.stalled": ("night: run.stalled", "silent since 12:00", link),
        "disk.low": ("disk: 3% free", "3% of /data are free", ""),
        "export.refused": ("watched night: export.refused", "form: gguf-q4\nincrease: 0.2", link),
    }
    assert len(webhook.bodies) == len(mails.messages) == 7
    sent = {str(message["Subject"]): message.get_content().split() for message in mails.messages}
    assert set(sent) == {title for title, _, _ in told.values()}
    for title, text, where in told.values():
        assert sent[title] == [*text.split(), *([where] if where else [])]


def test_only_a_run_that_is_no_longer_alive_is_crashed(api: str) -> None:
    """One that lives is heard of again in time; one has ended, and a late heartbeat arms the trigger once more; one
    waits to be tried again; one is not the desk's."""
    automation = crash_zombies(DeskSettings())
    trigger = automation.trigger.model_copy(update={"within": timedelta(seconds=SILENCE_SECONDS)})
    automation = automation.model_copy(update={"name": "quick", "trigger": trigger})

    def beat(run: FlowRun) -> Event:
        return event(HEARTBEAT, f"prefect.flow-run.{run.id}", {}, *([TAG] if run.tags else []))

    async def state_of(client: PrefectClient, run: FlowRun) -> State[Any]:
        state = (await client.read_flow_run(run.id)).state
        assert state
        return state

    async def tried_to_crash(client: PrefectClient, run: FlowRun) -> bool:
        wanted = {
            "event": {"prefix": ["prefect.automation.action."]},
            "any_resource": {"id": [f"prefect.flow-run.{run.id}"]},
        }
        response = await client._client.post("/events/filter", json={"filter": wanted})
        return bool(response.raise_for_status().json()["total"])

    async def story() -> dict[str, State[Any]]:
        async with get_client() as client:
            made = await client.create_automation(automation)
            names = ("alive", "ended", "waiting", "lost")
            runs = {name: await run_of(client, name) for name in names}
            runs["theirs"] = await run_of(client, "theirs", ())
            await emit(client, *(beat(run) for run in runs.values()))
            await client.set_flow_run_state(runs["ended"].id, State(type=StateType.COMPLETED))
            await client.set_flow_run_state(runs["waiting"].id, State(type=StateType.SCHEDULED), force=True)
            await emit(client, beat(runs["ended"]))
            began, late = time.monotonic(), 0
            while time.monotonic() < began + LIMIT_SECONDS:
                await asyncio.sleep(SILENCE_SECONDS / 4)
                await emit(client, beat(runs["alive"]))
                # Two more silences after the first crash: whatever else could be crashed would be by now.
                late += (await state_of(client, runs["lost"])).type == StateType.CRASHED
                if late > 8:
                    break
            await client.delete_automation(made)
            assert await tried_to_crash(client, runs["ended"]), "else this story shows nothing of it"
            return {name: await state_of(client, run) for name, run in runs.items()}

    found = asyncio.run(story())
    assert {name: state.type for name, state in found.items()} == {
        "alive": StateType.RUNNING,
        "ended": StateType.COMPLETED,
        "waiting": StateType.SCHEDULED,
        "lost": StateType.CRASHED,
        "theirs": StateType.RUNNING,
    }
    assert found["lost"].message == "no heartbeat for 90 s"


@pytest.mark.parametrize("told", TOLD, ids=lambda told: told.name)
@pytest.mark.parametrize(
    "payload", [{}, {"text": 'a "quote" \\ and\na line', "title": "{{ 1 }}"}, {"values": [1, "é"]}]
)
def test_what_a_webhook_gets_is_json_whatever_an_event_holds(told: Told, payload: dict[str, Any]) -> None:
    state = SimpleNamespace(name="Failed", message=payload.get("text", ""))
    context = {
        "event": SimpleNamespace(event="x", occurred="now", id=uuid4(), payload=payload),
        "flow": SimpleNamespace(name="f"),
        "flow_run": SimpleNamespace(name="r", state=state),
    }
    template = _json(told).replace("|ui_url", ".name")  # a filter that only a server has
    body = json.loads(render_user_template_sync(template, context))
    assert set(body) == {"event", "time", "id", "title", "text", "link"}
    assert body["text"] == payload.get("text", body["text"])


def test_what_has_not_changed_is_made_of_the_same() -> None:
    """Sets have no order, and each process has another; whether it is switched on is the user's."""
    one, other = crash_zombies(DeskSettings()), crash_zombies(DeskSettings())
    assert plain(one) == plain(other.model_copy(update={"enabled": False}))
    assert plain(one) != plain(crash_zombies(DeskSettings(crashed_after_seconds=91)))
    names = sorted(f"prefect.flow-run.{state}" for state in ("Failed", "TimedOut", "Crashed"))
    document = BlockDocument(name="x", block_type_id=UUID(int=1), block_schema_id=UUID(int=1), id=UUID(int=1))
    from flows.desk.objects.automations import _telling

    assert plain(_telling(TOLD[0], [document]))["trigger"]["expect"] == names
