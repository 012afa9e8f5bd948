"""Definitions to deployments on the server, part by part: a part that is on the server as it was deployed stays as the
user has changed it there, until that part changes in the checkout."""

from collections.abc import Sequence
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.events import DeploymentEventTrigger
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from flows.desk.objects.definitions import PARTS, Definition
from flows.desk.objects.record import Record

CONFLICT = 409  # what the server answers where parameters do not fit the form


async def deploy(wanted: Sequence[Definition], record: Record, client: PrefectClient) -> list[str]:
    """Bring the deployments of a desk to the server, and take away those that it made and that are no longer wanted.
    Returns what changed; `record` is brought up to date."""
    changed: list[str] = []
    for definition in wanted:
        if done := await _deploy(definition, record, client):
            changed.append(f"deployment {definition.slug}: {done}")
    for slug in sorted(record.deployments.keys() - {definition.slug for definition in wanted}):
        if found := await find_deployment(slug, client):
            await client.delete_deployment(found.id)
            changed.append(f"deployment {slug}: removed")
        del record.deployments[slug]
    return changed


async def _deploy(definition: Definition, record: Record, client: PrefectClient) -> str:
    digests, known = definition.digests(), record.deployments.get(definition.slug, {})
    found = await find_deployment(definition.slug, client)
    if found is None:
        await _create(definition, client)
    parts = [part for part in PARTS if found is None or digests[part] != known.get(part)]
    if found is not None and parts:
        await _update(definition, parts, found, client)
    record.deployments[definition.slug] = digests
    return "created" if found is None else ", ".join(parts)


async def find_deployment(slug: str, client: PrefectClient) -> DeploymentResponse | None:
    """The deployment flow/name, if it is there."""
    try:
        return await client.read_deployment_by_name(slug)
    except ObjectNotFound:
        return None


async def _create(definition: Definition, client: PrefectClient) -> None:
    fields = {**definition.fields}
    fields["schedules"] = [_schedule(schedule) for schedule in fields["schedules"]]
    flow_id = await client.create_flow_from_name(definition.flow)
    await client.create_deployment(flow_id=flow_id, name=definition.name, enforce_parameter_schema=True, **fields)


async def _update(
    definition: Definition, parts: Sequence[str], found: DeploymentResponse, client: PrefectClient
) -> None:
    fields: dict[str, Any] = {}
    for part in parts:
        fields |= definition.part(part)
    schedules = fields.pop("schedules", [])
    if fields:
        try:
            await client.update_deployment(found.id, DeploymentUpdate(**fields))
        except PrefectHTTPStatusError as error:
            if error.response.status_code != CONFLICT or "parameters" in parts:
                raise
            # The parameters that are there, which somebody has edited, are not what the form now asks for.
            fields |= definition.part("parameters")
            await client.update_deployment(found.id, DeploymentUpdate(**fields))
    for schedule in schedules:
        await _keep_schedule(_schedule(schedule), found, client)


async def _keep_schedule(new: DeploymentScheduleCreate, found: DeploymentResponse, client: PrefectClient) -> None:
    """One that is paused stays so, and one that a user has put in its place stays alone."""
    for there in found.schedules:
        if there.slug == new.slug:
            await client.update_deployment_schedule(found.id, there.id, schedule=new.schedule)
    if not found.schedules:
        await client.create_deployment_schedules(found.id, [new])


def _schedule(wanted: dict[str, Any]) -> DeploymentScheduleCreate:
    when = CronSchedule(cron=wanted["cron"], timezone=wanted["timezone"])
    return DeploymentScheduleCreate(schedule=when, slug=wanted["slug"], active=True)


async def triggers(wanted: Sequence[Definition], client: PrefectClient) -> list[AutomationCore]:
    """The automations that start deployments, which must be there."""
    made: list[AutomationCore] = []
    for definition in wanted:
        for spec in definition.triggers:
            trigger = DeploymentEventTrigger.model_validate(spec)
            trigger.set_deployment_id((await client.read_deployment_by_name(definition.slug)).id)
            made.append(trigger.as_automation())
    return made
