"""What the desk has put on a server, kept there as a Prefect variable: which objects are its own, and what they were
made of. So what a user changed since is told from what has changed in the checkout.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import VariableCreate, VariableUpdate

from data.errors import InputError
from flows.desk.objects.definitions import TAG

VARIABLE = "longhaul_provisioned"
MOST_CHARACTERS = 4900  # Prefect takes 5,000


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


async def write_record(record: Record, client: PrefectClient) -> None:
    """Raises InputError if there is too much of it."""
    value = asdict(record)
    if len(json.dumps(value)) > MOST_CHARACTERS:
        raise InputError(f"recipes: {len(record.deployments)} deployments are more than one desk can keep; name fewer")
    if await client.read_variable_by_name(VARIABLE):
        await client.update_variable(VariableUpdate(name=VARIABLE, value=value))
    else:
        await client.create_variable(VariableCreate(name=VARIABLE, value=value, tags=[TAG]))
