"""How something is put into the Prefect UI as an artifact: under a key that it takes, and so that a server that does
not answer, or a picture that cannot be drawn, stops no run."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.exceptions import MissingContextError, ObjectNotFound
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

_made: dict[tuple[str, str], UUID] = {}  # what is renewed, by flow run and key


def slug(name: str) -> str:
    """An artifact's key may hold small letters, digits and dashes alone."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


@contextmanager
def tolerant(what: str = "not shown in the UI") -> Iterator[None]:
    """A block whose failure is logged, and nothing more."""
    try:
        yield
    except Exception as error:
        _logger().warning("%s: %s: %s", what, type(error).__name__, error)


def _logger() -> Any:
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger(__name__)


async def show(key: str, text: str, description: str, *, renew: bool = False) -> None:
    """Markdown: the next version under its key or, with `renew`, in the place of the one that this flow run has
    shown."""
    place = str(flow_run.id), slug(key)
    if renew and place in _made:
        try:
            async with get_client() as client:
                await client.update_artifact(_made[place], ArtifactUpdate(data=text, description=description))
            return
        except ObjectNotFound:
            pass  # somebody has deleted it
    made = await acreate_markdown_artifact(text, key=place[1], description=description)
    if renew:
        _made[place] = made


async def show_table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """A table, whose numbers are to be rounded already."""
    await acreate_table_artifact([dict(row) for row in rows], key=slug(key), description=description)
