"""Everything that the desk needs on a Prefect server, made or brought up to date: the pool, its queues with their
limits, blocks, deployments, automations.

Asked for again, it changes nothing. What a user has changed in the UI stays: a schedule that is paused or edited,
parameters, a limit, an automation that is switched off. What the desk made and no longer wants is removed; nothing else
ever is.
"""

from collections.abc import Sequence

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import WorkQueueFilter, WorkQueueFilterName
from prefect.events.schemas.automations import Automation, AutomationCore
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from data.errors import InputError
from flows.desk.objects.automations import crash_zombies, plain, tell
from flows.desk.objects.blocks import Email, keep_blocks
from flows.desk.objects.definitions import DIGEST_DIGITS, Definition, definitions
from flows.desk.objects.deploy import deploy, triggers
from flows.desk.objects.record import Record, read_record, require_room, write_record
from flows.desk.settings import DeskSettings
from stages.fingerprint import digest


async def provision(settings: DeskSettings) -> list[str]:
    """Lines of what was changed on the server of PREFECT_API_URL; none if it was all there. Raises InputError: before
    anything is done for recipes that are not valid or too many, and once all else is there for blocks that are not."""
    wanted = definitions(settings)
    require_room(wanted)
    async with get_client() as client:
        record = await read_record(client)
        before = repr(record)
        try:
            changed, problems = await _keep(settings, wanted, record, client)
        finally:  # what is done is known, also where what follows fails: it is not done again over what a user changes
            if repr(record) != before:
                await write_record(record, client)
    if problems:
        raise InputError("\n".join(problems))
    return changed


async def _keep(
    settings: DeskSettings, wanted: Sequence[Definition], record: Record, client: PrefectClient
) -> tuple[list[str], list[str]]:
    """What changed, and what a user has to mend."""
    changed = await _keep_pool(settings, client)
    changed += await _keep_queues(settings, record, client)
    await Email.aregister_type_and_schema(client=client)  # the UI can then make one
    blocks, problems = await keep_blocks(settings.blocks, client)
    changed += blocks
    changed += await deploy(wanted, record, client)
    telling, more = await tell(settings, client)
    automations = [crash_zombies(settings), *await triggers(wanted, client), *telling]
    changed += await _keep_automations(automations, record, client)
    return changed, [*problems, *more]


async def _keep_pool(settings: DeskSettings, client: PrefectClient) -> list[str]:
    try:
        await client.read_work_pool(settings.pool)
        return []
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        description = "Flow runs as processes on the machines that have a worker of the desk."
        await client.create_work_pool(
            WorkPoolCreate(
                name=settings.pool, type=ProcessWorker.type, description=description, base_job_template=template
            )
        )
        return [f"work pool {settings.pool}: created"]


async def _keep_queues(settings: DeskSettings, record: Record, client: PrefectClient) -> list[str]:
    """A limit of the settings holds until it is changed in the UI, and again once it changes in the settings."""
    changed: list[str] = []
    limits = {"training": settings.training_runs, "evaluation": settings.evaluation_runs}
    for name, limit in limits.items():
        chosen = WorkQueueFilter(name=WorkQueueFilterName(any_=[name]))
        found = await client.read_work_queues(settings.pool, chosen)
        if not found:
            await client.create_work_queue(name, work_pool_name=settings.pool, concurrency_limit=limit)
            changed.append(f"queue {name}: created, {limit} at a time")
        elif record.queues.get(name) != limit:
            await client.update_work_queue(found[0].id, concurrency_limit=limit)
            changed.append(f"queue {name}: {limit} at a time")
    record.queues = limits
    return changed


async def _keep_automations(wanted: Sequence[AutomationCore], record: Record, client: PrefectClient) -> list[str]:
    changed: list[str] = []
    for automation in wanted:
        found, made_of = await _find(automation.name, client), digest(plain(automation))[:DIGEST_DIGITS]
        if found is None:
            await client.create_automation(automation)
            changed.append(f"automation {automation.name!r}: created")
        elif record.automations.get(automation.name) != made_of:
            await client.update_automation(found.id, automation.model_copy(update={"enabled": found.enabled}))
            changed.append(f"automation {automation.name!r}: updated")
        record.automations[automation.name] = made_of
    for name in sorted(record.automations.keys() - {automation.name for automation in wanted}):
        if found := await _find(name, client):
            await client.delete_automation(found.id)
            changed.append(f"automation {name!r}: removed")
        del record.automations[name]
    return changed


async def _find(name: str, client: PrefectClient) -> Automation | None:
    found = await client.read_automations_by_name(name)
    return found[0] if found else None
