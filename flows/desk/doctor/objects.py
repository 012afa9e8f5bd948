"""For the doctor: whether deployments, automations and blocks are on the server as this checkout would make them."""

import asyncio
from collections.abc import Iterator, Sequence

from httpx import HTTPError
from prefect.client.orchestration import PrefectClient, get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from data.errors import InputError
from flows.desk.doctor.findings import UP, Finding, fail, ok, warn
from flows.desk.objects.automations import crash_zombies, plain, tell
from flows.desk.objects.blocks import find_document
from flows.desk.objects.definitions import CHECKOUT, DIGEST_DIGITS, Definition, definitions
from flows.desk.objects.deploy import find_deployment, triggers
from flows.desk.objects.record import Record, read_record
from flows.desk.settings import CLIENT_AUTH, DeskSettings, client_environment, desk_home
from stages.fingerprint import digest


def of_objects(settings: DeskSettings) -> Iterator[Finding]:
    """Findings about what `provision` keeps."""
    variables = client_environment(settings)
    with temporary_settings(
        {PREFECT_API_URL: variables["PREFECT_API_URL"], PREFECT_API_AUTH_STRING: variables.get(CLIENT_AUTH)}
    ):
        try:
            yield from asyncio.run(_findings(settings))
        except HTTPError as error:
            text = f"the server does not say what is on it ({type(error).__name__})"
            yield fail("server", text, f"{desk_home() / 'server.log'} may say why")


async def _findings(settings: DeskSettings) -> list[Finding]:
    try:
        wanted = definitions(settings)
    except InputError as error:
        return [fail("recipes", str(error), "mend the recipe, or leave it out of recipes in the desk's file")]
    async with get_client() as client:
        record = await read_record(client)
        return [
            *await _deployments(wanted, record, client),
            *await _blocks(settings, client),
            *await _automations(settings, wanted, record, client),
        ]


async def _deployments(wanted: Sequence[Definition], record: Record, client: PrefectClient) -> list[Finding]:
    found: list[Finding] = []
    for definition in wanted:
        subject, deployment = f"deployment {definition.slug}", await find_deployment(definition.slug, client)
        if deployment is None:
            found.append(fail(subject, "is not there", f"make it: {UP}"))
        elif deployment.pull_steps != definition.fields["pull_steps"]:
            found.append(fail(subject, f"runs in another checkout than {CHECKOUT}", f"bind it to this one: {UP}"))
        elif record.deployments.get(definition.slug) != definition.digests():
            found.append(warn(subject, "is older than this checkout", f"bring it up to date: {UP}"))
        elif deployment.paused:
            found.append(warn(subject, "is paused", "resume it in the UI"))
    return found or [ok("deployments", f"{len(wanted)}, of {CHECKOUT}")]


async def _blocks(settings: DeskSettings, client: PrefectClient) -> list[Finding]:
    found = [
        fail(f"block {block.slug}", "is not on the server", f"set its variables, then {UP}")
        for block in settings.blocks
        if await find_document(block.slug, client) is None
    ]
    return found or [ok("blocks", f"{len(settings.blocks)} declared")]


async def _automations(
    settings: DeskSettings, wanted: Sequence[Definition], record: Record, client: PrefectClient
) -> list[Finding]:
    telling, problems = await tell(settings, client)
    found = [fail("notify", problem, f"then {UP}") for problem in problems]
    automations = [crash_zombies(settings), *await triggers(wanted, client), *telling]
    for automation in automations:
        subject, there = f"automation {automation.name!r}", await client.read_automations_by_name(automation.name)
        if not there:
            found.append(fail(subject, "is not there", f"make it: {UP}"))
        elif not there[0].enabled:
            found.append(warn(subject, "is switched off", "switch it on in the UI"))
        elif record.automations.get(automation.name) != digest(plain(automation))[:DIGEST_DIGITS]:
            found.append(warn(subject, "is older than this checkout", f"bring it up to date: {UP}"))
    if not settings.notify:
        found.append(
            warn("notify", "nobody is told when something goes wrong", "name blocks in notify of the desk's file")
        )
    return found or [ok("automations", f"{len(automations)} switched on")]
