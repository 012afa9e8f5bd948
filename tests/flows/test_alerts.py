"""A user relies on: an alert reaches every channel that was named, once, also after the channel was away."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import pytest
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.blocks.webhook import Webhook

from flows import alerts
from flows.terminal import terminal
from stages.alerts import Finding, Kind, Look, Notice, Topic
from stages.store import Store
from tests.flows.receiver import Receiver, receiving

LIMIT_SECONDS = 60
HOOK, MAIL = "webhook/ops", "mail/team"


class Mail(NotificationBlock):
    """Keeps what it is asked to send."""

    async def notify(self, body: str, subject: str | None = None) -> None:
        sent.append((subject, body))


sent: list[tuple[str | None, str]] = []


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Blocks of these names, without a server; no event leaves."""
    sent.clear()
    with receiving() as found:

        async def load(name: str) -> Any:
            if name not in (HOOK, MAIL):
                raise ValueError(f"Unable to find block document {name}")
            return Webhook(url=found.url) if name == HOOK else Mail()

        monkeypatch.setattr(Block, "aload", staticmethod(load))
        monkeypatch.setattr(alerts, "emit_event", lambda name, **event: events.append((name, event)))
        monkeypatch.setattr(alerts, "RETRY_DELAYS_SECONDS", (0.0, 0.0))
        events: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(found, "events", events, raising=False)
        yield found


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """What a terminal shows."""
    found: list[str] = []
    token = terminal.set(lambda event: found.append(event["text"]))
    yield found
    terminal.reset(token)


def look(*tasks: str) -> Look:
    def finding(task: str) -> Finding:
        topic = Topic(label="demo", kind=Kind.REGRESSION, suite="core", task=task)
        return Finding(topic=topic, text=f"{task} got worse", evidence={"flips": [{"item": 3}]})

    return Look(label="demo", kind=Kind.REGRESSION, found=tuple(finding(task) for task in tasks))


def tell(root: Path, *looks: Look, blocks: tuple[str, ...] = (HOOK,)) -> tuple[Notice, ...]:
    return asyncio.run(alerts.tell(Store(root), looks, blocks))


def test_each_channel_is_told_once(tmp_path: Path, receiver: Receiver) -> None:
    for tasks in (["bracket"], ["bracket"], [], []):
        tell(tmp_path, look(*tasks), blocks=(HOOK, MAIL))
    assert receiver.told == [("raised", "regression"), ("resolved", "regression")]
    body = receiver.bodies[0]
    assert (body["label"], body["topics"]) == ("demo", [["core", "bracket"]])
    assert body["evidence"][0]["flips"] == [{"item": 3}] and body["text"] == "bracket got worse"
    assert [subject for subject, _ in sent] == [body["title"], receiver.bodies[1]["title"]]
    assert [name for name, _ in receiver.events] == ["alert.raised", "alert.resolved"]  # type: ignore[attr-defined]


def test_a_channel_that_was_away_for_a_moment_is_tried_again(tmp_path: Path, receiver: Receiver) -> None:
    receiver.refuses = 2
    tell(tmp_path, look("bracket"))
    assert (receiver.refused, len(receiver.bodies)) == (2, 1)


def test_a_channel_that_was_away_for_long_gets_everything_later(tmp_path: Path, receiver: Receiver) -> None:
    receiver.refuses = 1000
    assert len(tell(tmp_path, look("bracket"), blocks=(HOOK, MAIL))) == 1
    assert len(tell(tmp_path, look("bracket", "word"), blocks=(HOOK, MAIL))) == 1
    assert receiver.bodies == [] and len(sent) == 2, "one channel does not wait for another"
    receiver.refuses = 0
    tell(tmp_path, blocks=(HOOK, MAIL))
    tell(tmp_path, blocks=(HOOK, MAIL))
    assert [body["topics"] for body in receiver.bodies] == [[["core", "bracket"]], [["core", "word"]]]
    assert len(sent) == 2


def test_what_a_block_keeps_secret_is_nowhere(tmp_path: Path, receiver: Receiver, warnings: list[str]) -> None:
    """The address of a webhook is the right to write to it, and an error of its client names it."""
    receiver.refuses = 1000
    tell(tmp_path, look("bracket"))
    assert warnings == [f"{HOOK} has not taken 'demo: regression (bracket)': HTTPStatusError (503)"]
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert written and not any(receiver.url in text for text in written)


def test_many_that_tell_at_once_do_not_wait_for_each_other(tmp_path: Path, receiver: Receiver) -> None:
    """A name is looked up in a thread, of which there are few."""
    receiver.url = receiver.url.replace("127.0.0.1", "localhost")

    async def tell_all() -> None:
        looks = [look("bracket", *(f"task_{i}" for i in range(number))) for number in range(40)]
        await asyncio.gather(*(alerts.tell(Store(tmp_path), [each], (HOOK,)) for each in looks))

    asyncio.run(asyncio.wait_for(tell_all(), LIMIT_SECONDS))
    assert len(receiver.bodies) == len({body["id"] for body in receiver.bodies}) > 0


def test_a_block_that_is_not_there_stops_nothing(tmp_path: Path, receiver: Receiver, warnings: list[str]) -> None:
    assert len(tell(tmp_path, look("bracket"), blocks=("webhook/absent", HOOK))) == 1
    assert len(receiver.bodies) == 1
    assert warnings == ["webhook/absent has not taken 'demo: regression (bracket)': Prefect has no block of this name"]
