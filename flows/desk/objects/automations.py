"""The automations of the desk: runs that no longer say they are alive are marked crashed, and whoever is to be told of
what goes wrong is told through the blocks of `notify`.

An automation lives on the server and acts there. A flow run that has ended is left as it is, by the server's own rule:
the change of state is not forced.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
from prefect.blocks.core import Block
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import BlockDocument, StateType
from prefect.events.actions import ActionTypes, CallWebhook, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

from data.errors import InputError
from flows.desk.names import HEARTBEAT, TAG
from flows.desk.objects.blocks import find_document, tells
from flows.desk.settings import DeskSettings

NAME = "longhaul: "  # how the name of each begins
CRASH_ZOMBIES = NAME + "crash runs without heartbeat"
INCIDENT_MINUTES = 10
OURS = {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"}

# What the server fills in. A payload has a text if whoever emitted the event wrote one.
RUN_TITLE = "{{ flow.name }} {{ flow_run.name }}: {{ flow_run.state.name }}"
RUN_TEXT = "{{ flow_run.state.message }}"
EVENT_TITLE = (
    "{% if event.payload.title %}{{ event.payload.title }}{% else %}"
    "{% if flow %}{{ flow.name }} {% endif %}{% if flow_run %}{{ flow_run.name }}: {% endif %}"
    "{{ event.event }}{% endif %}"
)
EVENT_TEXT = (
    "{% if event.payload.text %}{{ event.payload.text }}{% else %}"
    "{% for name, value in event.payload.items() if name not in ('time', 'stage', 'kind', 'title') %}"
    "{{ name }}: {{ value }}\n{% endfor %}{% endif %}"
)
LINK = "{% if event.payload.link %}{{ event.payload.link }}{% elif flow_run %}{{ flow_run|ui_url }}{% endif %}"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What somebody is told of. about: the resources, and what is related to them, that events must have. pause:
    how long it is quiet after a message about the same thing."""

    name: str
    description: str
    events: frozenset[str]
    about: dict[str, str]
    related: dict[str, str] | None = None
    pause: timedelta = timedelta()
    title: str = EVENT_TITLE
    text: str = EVENT_TEXT


TOLD = (
    Told(
        name="tell of a run that failed or crashed",
        description="Flow runs with the tag longhaul.",
        events=frozenset(f"prefect.flow-run.{state}" for state in ("Failed", "TimedOut", "Crashed")),
        about={"prefect.resource.id": "prefect.flow-run.*"},
        related=OURS,
        title=RUN_TITLE,
        text=RUN_TEXT,
    ),
    Told(
        name="tell of an alert",
        description="A model got worse, an evaluation failed or is overdue; and the end of each.",
        events=frozenset({"alert.raised", "alert.resolved"}),
        about={"prefect.resource.id": "longhaul.*"},
    ),
    Told(
        name="tell of an incident",
        description=f"A training went back or lost a process; at most every {INCIDENT_MINUTES} minutes for each stage.",
        events=frozenset({"incident"}),
        about={"prefect.resource.id": "longhaul.*"},
        pause=timedelta(minutes=INCIDENT_MINUTES),
    ),
    Told(
        name="tell of a run that stands still",
        description="Its journal has been silent for stalled_after_minutes.",
        events=frozenset({"run.stalled"}),
        about={},
    ),
    Told(
        name="tell of a disk that is nearly full",
        description="Less than disk_least_share or disk_least_bytes is free.",
        events=frozenset({"disk.low"}),
        about={},
    ),
    Told(
        name="tell of an export that was refused",
        description="A form of the model did not pass the quality gate.",
        events=frozenset({"export.refused"}),
        about={"prefect.resource.id": "longhaul.*"},
    ),
)


def crash_zombies(settings: DeskSettings) -> AutomationCore:
    """Proactive: after a heartbeat, any event of the run is awaited, another heartbeat or a state; a run that ended is
    thus awaited no longer. A heartbeat that comes after the end arms it once more, and then changes nothing."""
    return AutomationCore(
        name=CRASH_ZOMBIES,
        description="A process, a worker or a machine was lost. The watch of the desk has the run resumed.",
        tags=[TAG],
        trigger=EventTrigger(
            after={HEARTBEAT},
            expect={"prefect.flow-run.*"},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=ResourceSpecification(OURS),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=settings.crashed_after_seconds),
        ),
        actions=[
            ChangeFlowRunState(state=StateType.CRASHED, message=f"no heartbeat for {settings.crashed_after_seconds} s")
        ],
    )


async def tell(settings: DeskSettings, client: PrefectClient) -> tuple[list[AutomationCore], list[str]]:
    """An automation for each kind of trouble, which tells all blocks of `notify`; none if there are none. Returns also
    what a user has to mend."""
    receivers: list[BlockDocument] = []
    problems: list[str] = []
    for slug in settings.notify:
        try:
            receivers.append(await _receiver(slug, client))
        except InputError as error:
            problems.append(str(error))
    return [_telling(told, receivers) for told in TOLD if receivers], problems


async def _receiver(slug: str, client: PrefectClient) -> BlockDocument:
    document = await find_document(slug, client)
    if document is None:
        raise InputError(f"notify: there is no block {slug} on the server; [[blocks]] of desk.toml can make it")
    assert document.block_schema
    if not tells(Block.get_block_class_from_schema(document.block_schema)):
        raise InputError(f"notify: {slug} is no block through which somebody can be told")
    return document


def _telling(told: Told, receivers: Sequence[BlockDocument]) -> AutomationCore:
    return AutomationCore(
        name=NAME + told.name,
        description=told.description,
        tags=[TAG],
        trigger=EventTrigger(
            expect=set(told.events),
            match=ResourceSpecification(told.about),
            match_related=ResourceSpecification(told.related or {}),
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=told.pause,
        ),
        actions=[_action(told, receiver) for receiver in receivers],
    )


def _action(told: Told, receiver: BlockDocument) -> ActionTypes:
    if receiver.block_type_name == Webhook.get_block_type_name():
        return CallWebhook(block_document_id=receiver.id, payload=_json(told))
    body = f"{told.text}\n\n{LINK}"
    return SendNotification(block_document_id=receiver.id, subject=told.title, body=body)


def _json(told: Told) -> str:
    """JSON once the server has filled it in."""
    made = {"event": "{{ event.event }}", "time": "{{ event.occurred }}", "id": "{{ event.id }}"}
    made |= {"title": told.title, "text": told.text, "link": LINK}
    return "{" + ", ".join(f'"{name}": {_quoted(template)}' for name, template in made.items()) + "}"


def _quoted(template: str) -> str:
    return "{% filter tojson %}" + template + "{% endfilter %}"


def plain(automation: AutomationCore) -> dict[str, Any]:
    """What decides whether an automation has changed: all but whether it is switched on, which is the user's."""
    dumped = automation.model_dump(mode="json", exclude={"enabled", "id", "owner_resource"})
    trigger = dumped["trigger"]
    return {
        **dumped,
        "trigger": {name: sorted(value) if isinstance(value, list) else value for name, value in trigger.items()},
    }
