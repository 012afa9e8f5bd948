"""What the desk has put on a server, kept there as a Prefect variable: which objects are its own, and what they were
made of. So what a user changed since is told from what has changed in the checkout.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import VariableCreate, VariableUpdate

from data.errors import InputError
from flows.desk.names import TAG
from flows.desk.objects.definitions import Definition

VARIABLE = "longhaul_provisioned"
MOST_CHARACTERS = 4900  # Prefect takes 5,000
OTHERS_CHARACTERS = 900  # of the queues and automations


@dataclass
class Record:
    """queues: name -> limit. deployments: flow/name -> digest of each part. automations: name -> digest."""

    queues: dict[str, int] = field(default_factory=dict)
    deployments: dict[str, dict[str, str]] = field(default_factory=dict)
    automations: dict[str, str] = field(default_factory=dict)


async def read_record(client: PrefectClient) -> Record:
    """That of the server; an empty one where there is none, or none that can be read: then all is made again."""
    variable = await client.read_variable_by_name(VARIABLE)
    kept: Any = variable.value if variable else {}
    try:
        return Record(**{name: dict(kept[name]) for name in asdict(Record()) if name in kept})
    except (TypeError, ValueError):
        return Record()


def require_room(wanted: Sequence[Definition]) -> None:
    """Raises InputError if a record of these deployments would be more than a variable can hold."""
    deployments = {definition.slug: definition.digests() for definition in wanted}
    kept = asdict(Record(deployments=deployments))
    if len(json.dumps(kept)) > MOST_CHARACTERS - OTHERS_CHARACTERS:
        raise InputError(f"recipes: {len(wanted)} deployments are more than one desk can keep; name fewer")


async def write_record(record: Record, client: PrefectClient) -> None:
    """In place of the one that is there."""
    value = asdict(record)
    if await client.read_variable_by_name(VARIABLE):
        await client.update_variable(VariableUpdate(name=VARIABLE, value=value))
    else:
        await client.create_variable(VariableCreate(name=VARIABLE, value=value, tags=[TAG]))
