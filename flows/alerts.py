"""Whoever is to be told of an alert is told: through Prefect's blocks, and by an event on its server.

The ledger (stages/alerts.py) decides and remembers. A channel that cannot be reached is tried again a few times, and
then by whatever looks next.
"""

import asyncio
import inspect
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from time import time
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
from httpx import Response
from prefect.blocks.core import Block
from prefect.blocks.webhook import Webhook
from prefect.events import emit_event
from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL

import flows.desk.objects.blocks  # noqa: F401  (blocks can be loaded by name once they are known)
from data.errors import InputError
from flows.terminal import watching
from stages.alerts import Ledger, Look, Notice
from stages.store import Store

EVENTS = "prefect-events"  # the channel that is always there
RETRY_DELAYS_SECONDS = (1.0, 5.0)
POLL_SECONDS = 0.1


async def tell(store: Store, looks: Sequence[Look], blocks: Sequence[str]) -> tuple[Notice, ...]:
    """Write down what `looks` change and deliver all that is still to be told. `blocks`: of Prefect, as type/name.
    Returns the new notices; of a channel that has not taken one there is a warning, and no error."""
    ledger, channels = Ledger(store.root, clock=time), (EVENTS, *blocks)
    made = ledger.record(looks, link=run_url(), channels=channels)
    with ExitStack() as stack:
        while True:
            with suppress(BlockingIOError):
                stack.enter_context(ledger.delivering())
                break
            await asyncio.sleep(POLL_SECONDS)  # not in a thread: those are what sending needs
        await _deliver(ledger, channels)
    return made


async def _deliver(ledger: Ledger, channels: Sequence[str]) -> None:
    broken: set[str] = set()
    for notice, channel in ledger.known().pending(channels):
        if channel in broken:
            continue
        try:
            await _send(notice, channel)
        except Exception as error:  # of any block: a receiver that is away must not stop an evaluation
            broken.add(channel)
            _warn(f"{channel} has not taken {notice.title!r}: {_reason(error)}")
        else:
            ledger.delivered(notice, channel)


def _warn(text: str) -> None:
    """In the terminal, if somebody watches there, and in the log of the flow run."""
    watching()({"kind": "warning", "stage": "alerts", "text": text})
    with suppress(MissingContextError):  # outside of a flow run there is no log
        get_run_logger().warning("%s", text)


def _reason(error: Exception) -> str:
    """Without the message of a block, which may hold its address and what in it is secret."""
    if isinstance(error, InputError):
        return str(error)
    answer = getattr(error, "response", None)
    return type(error).__name__ + (f" ({answer.status_code})" if isinstance(answer, Response) else "")


async def _send(notice: Notice, channel: str) -> None:
    if channel == EVENTS:
        resource = {"prefect.resource.id": f"longhaul.alert.{notice.label}"}
        emit_event(f"alert.{notice.state}", resource=resource, payload=message(notice))
        return
    for delay in (*RETRY_DELAYS_SECONDS, None):
        try:
            return await _call(await _load(channel), notice)
        except Exception:
            if delay is None:
                raise
            await asyncio.sleep(delay)


async def _load(channel: str) -> Any:
    try:
        return await Block.aload(channel)
    except ValueError:
        raise InputError("Prefect has no block of this name") from None


async def _call(block: Any, notice: Notice) -> None:
    """Raises what the block raises, and for an answer that says no."""
    if isinstance(block, Webhook):
        (await block.call(message(notice))).raise_for_status()
        return
    with block.raise_on_failure():
        sent = block.notify(f"{notice.text}\n\n{notice.link}".strip(), notice.title)
        if inspect.isawaitable(sent):
            await sent


def message(notice: Notice) -> dict[str, Any]:
    """What a webhook receives, as JSON."""
    return {"id": notice.id, "title": notice.title, "text": notice.text, **asdict(notice)}


def run_url() -> str:
    """Where Prefect's UI shows this flow run; empty outside one, or without a server."""
    site = PREFECT_UI_URL.value() or (PREFECT_API_URL.value() or "").removesuffix("/api")
    return f"{site}/runs/flow-run/{flow_run.id}" if site and flow_run.id else ""
