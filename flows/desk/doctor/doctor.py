"""`python -m flows.desk doctor`: what the desk misses or has wrong, each with what to do about it.

First what can be seen on this machine, then, if the server answers, what is on it. Nothing is changed.
"""

import importlib.metadata
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from data.errors import InputError
from flows.desk.client import Client, ServerError
from flows.desk.doctor.findings import UP, Finding, Level, fail, ok, summary, warn
from flows.desk.names import WORKER_LABEL, worker_name
from flows.desk.processes.parts import (
    PLACE_VARIABLE,
    has_variables,
    keeper_variables,
    part_played,
    parts_of,
    place_of_records,
)
from flows.desk.processes.process import of_desk
from flows.desk.processes.state import keeper_of, read_state, running_desk
from flows.desk.settings import DeskSettings, api_url, client_environment, desk_home, environment
from flows.desk.watch.disk import Disks, spaces
from flows.desk.watch.flow_processes import flow_processes
from flows.serving import is_healthy
from stages.errors import BAD_INPUT, OK

ENDS_OFTEN = 3
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def examine(load: Callable[[], DeskSettings], say: Callable[[str], None]) -> int:
    """Say what is found; the exit code: 2 if something does not work."""
    findings: list[Finding] = []

    def tell(found: Iterator[Finding]) -> None:
        for finding in found:
            findings.append(finding)
            say(str(finding))

    try:
        settings = load()
        environment(settings)
    except InputError as error:
        tell(iter([fail("settings", str(error), "nothing else is looked at before this is mended")]))
    else:
        tell(of_machine(settings, os.environ))
        url = api_url(settings)
        if is_healthy(url):
            tell(of_server(settings, Client(url, client_environment(settings))))
            tell(_of_objects(settings))
        else:
            tell(iter([fail("server", f"does not answer at {url}", f"{desk_home() / 'server.log'} may say why; {UP}")]))
    say(summary(findings))
    return BAD_INPUT if any(finding.level is Level.FAIL for finding in findings) else OK


def of_machine(settings: DeskSettings, shell: Mapping[str, str]) -> Iterator[Finding]:
    """What can be seen here. `shell`: the environment that the doctor was called in."""
    home = desk_home()
    yield ok("settings", f"{settings.database}{', redis' if settings.redis else ''}, {', '.join(settings.parts)} here")
    yield from _processes(settings, home)
    yield from _secrets(settings, shell)
    yield from _home(home.parent)
    yield _shell(settings)
    low = Disks(settings.disk_least_share, settings.disk_least_bytes).look(
        spaces([Path(settings.root).resolve(), home])
    )
    for change in low:
        yield fail("disk", change.text, "remove what is no longer needed: python -m stages gc")
    if not low:
        yield ok("disk", "there is room")


def _processes(settings: DeskSettings, home: Path) -> Iterator[Finding]:
    keeper, failures = keeper_of(home), read_state(home).get("failures", {})
    if keeper is None:
        yield fail("keeper", f"no desk is running in {home}", f"start it: {UP}")
    elif not has_variables(keeper, keeper_variables(settings)):
        yield warn("keeper", "it keeps the desk with other settings, or older code", f"bring it up to date: {UP}")
    else:
        yield ok("keeper", f"process {keeper.pid}")
    running = {part_played(process): process for process in of_desk(home)}
    for part in parts_of(settings):
        process = running.get(part.name)
        often = failures.get(part.name, 0)
        if process is None:
            yield fail(part.name, "does not run", f"{home / part.name}.log may say why; then {UP}")
        elif often >= ENDS_OFTEN:
            yield warn(part.name, f"has ended {often} times in a row", f"{home / part.name}.log may say why")
        else:
            yield ok(part.name, f"process {process.pid}")
    if (server := running.get("server")) and server.environment.get(PLACE_VARIABLE) != place_of_records(settings):
        yield fail("database", f"the server uses {server.environment.get(PLACE_VARIABLE)}", f"start it again: {UP}")


def _secrets(settings: DeskSettings, shell: Mapping[str, str]) -> Iterator[Finding]:
    """Only a block that is not on the server yet needs them: they are a failure where it is missed."""
    for block in settings.blocks:
        for field, variable in block.secrets.items():
            if not shell.get(variable):
                fix = f"set it before {UP} if the block is not on the server yet, or is to change"
                yield warn("secrets", f"{variable}, for {field} of {block.slug}, is not set here", fix)


def _home(home: Path) -> Iterator[Finding]:
    """The database in it holds what is secret in blocks, and the key to that."""
    if home.exists() and home.stat().st_mode & OTHERS:
        text = f"others on this machine can read {home}, and with it what is secret in blocks"
        yield warn("home", text, f"chmod 700 {home}")


def _shell(settings: DeskSettings) -> Finding:
    subject, url = "this shell", api_url(settings)
    from prefect.settings import get_current_settings  # knows profiles, too

    set_to = get_current_settings().api.url
    if set_to and set_to.replace("localhost", "127.0.0.1").rstrip("/") != url:
        text = f"PREFECT_API_URL is {set_to}: flows that are started here are not on the desk"
        return warn(subject, text, f"export PREFECT_API_URL={url}")
    if not set_to and not running_desk(desk_home()):
        return ok(subject, "flows that are started here are on the desk once it is up")
    return ok(subject, "flows that are started here are on the desk")


def of_server(settings: DeskSettings, client: Client) -> Iterator[Finding]:
    """What the server says of itself, of its pool and of the runs that go on."""
    checks: tuple[Callable[[DeskSettings, Client], Iterator[Finding]], ...] = (_versions, _pool, _runs)
    for check in checks:
        try:
            yield from check(settings, client)
        except ServerError as error:
            yield fail("server", str(error), f"{desk_home() / 'server.log'} may say more")


def _versions(settings: DeskSettings, client: Client) -> Iterator[Finding]:
    version, here = client.get("/admin/version"), importlib.metadata.version("prefect")
    if version == here:
        yield ok("server", f"serves, Prefect {version}")
    else:
        yield warn("server", f"is Prefect {version}, and {here} is installed here", f"start it again: {UP}")
    try:
        client.get("/ready")
        yield ok("database", f"{place_of_records(settings)} answers")
    except ServerError as error:
        yield fail("database", f"does not answer: {error}", "is it running, and is its address right?")
    if client.get("/admin/settings")["server"].get("analytics_enabled"):
        yield warn("telemetry", "the server reports to its makers", f"start it again: {UP}")
    else:
        yield ok("telemetry", "off")


def _pool(settings: DeskSettings, client: Client) -> Iterator[Finding]:
    if not client.exists(f"/work_pools/{settings.pool}"):
        yield fail("pool", f"there is no work pool {settings.pool}", f"make it: {UP}")
        return
    if client.get(f"/work_pools/{settings.pool}")["is_paused"]:
        yield fail("pool", f"work pool {settings.pool} is paused: nothing starts", "resume it in the UI")
    else:
        yield ok("pool", settings.pool)
    queues = {queue["name"]: queue for queue in client.post(f"/work_pools/{settings.pool}/queues/filter", {})}
    for name, limit in {"training": settings.training_runs, "evaluation": settings.evaluation_runs}.items():
        yield _queue(name, limit, queues.get(name))
    if "worker" in settings.parts:
        workers = client.post(f"/work_pools/{settings.pool}/workers/filter", {})
        if any(worker["name"] == worker_name() and worker["status"] == "ONLINE" for worker in workers):
            yield ok("heartbeat", "the worker of this machine is online")
        else:
            text = "the worker of this machine has not been heard of for long"
            yield fail("heartbeat", text, f"{desk_home() / 'worker.log'} may say why")


def _queue(name: str, limit: int, queue: Mapping[str, Any] | None) -> Finding:
    subject = f"queue {name}"
    if queue is None:
        return fail(subject, "is not there", f"make it: {UP}")
    if queue["is_paused"]:
        return fail(subject, "is paused: nothing of it starts", "resume it in the UI")
    if queue["concurrency_limit"] != limit:
        text = f"runs {queue['concurrency_limit'] or 'any number'} at a time, and the settings say {limit}"
        return warn(subject, text, "what was changed in the UI stays; change it there, or in the settings")
    return ok(subject, f"{limit} at a time")


def _runs(settings: DeskSettings, client: Client) -> Iterator[Finding]:
    """Runs whose process was on this machine and is gone, and runs that wait for a place."""
    going = client.post("/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "CANCELLING"]}}}})
    here = [run for run in going if (run.get("labels") or {}).get(WORKER_LABEL) == worker_name()]
    alive = flow_processes()
    lost = [run["name"] for run in here if run["id"] not in alive]
    if lost:
        text = f"the process of {', '.join(lost)} is gone"
        yield warn("runs", text, "the watch marks them crashed within a minute; does it run?")
    else:
        yield ok("runs", f"{len(going)} going on")
    late = client.post("/flow_runs/filter", {"flow_runs": {"state": {"name": {"any_": ["Late"]}}}})
    if late:
        text = f"{len(late)} are late: {', '.join(run['name'] for run in late[:5])}"
        yield warn("runs", text, "they wait for a place in their queue, or for a worker")


def _of_objects(settings: DeskSettings) -> Iterator[Finding]:
    from flows.desk.doctor.objects import of_objects  # imports Prefect

    yield from of_objects(settings)
