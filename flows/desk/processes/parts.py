"""The processes that a desk consists of: their commands and environments, and what each waits for."""

import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import xxhash

from flows.desk.names import worker_name
from flows.desk.processes.process import MARK, Process, python
from flows.desk.settings import (
    AUTH,
    CHECKOUT,
    DATABASE_URL,
    REDIS_URL,
    DeskSettings,
    client_environment,
    desk_home,
    environment,
)
from flows.serving import SERVER_ENVIRONMENT, server_command

SETTINGS_VARIABLE = "LONGHAUL_DESK_SETTINGS"  # all settings, as JSON: none of them is secret
PART_VARIABLE = "LONGHAUL_DESK_PART"
PLACE_VARIABLE = "LONGHAUL_DESK_DATABASE"
CODE_VARIABLE = "LONGHAUL_DESK_CODE"
KIND_VARIABLE = "LONGHAUL_DESK_KIND"
SOURCES = ("data", "deployments", "eval", "flows", "stages")
OF_THE_SHELL = ("NO_PROXY", "no_proxy")
OF_THE_SERVER = ("PREFECT_SERVER_", "PREFECT_API_DATABASE_", "PREFECT_REDIS_", "PREFECT_MESSAGING_")
# In the order in which they start. A process is told from its descendants, which inherit its variables, by its command.
SIGNATURES = {
    "server": ("-m", "uvicorn"),
    "provision": ("-m", "flows.desk", "provision"),
    "worker": ("-m", "prefect", "worker", "start"),
    "watch": ("-m", "flows.desk", "watch"),
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One process of the desk. `own` are the variables that it is started with besides the inherited ones, without
    `dropped`. One that runs `once` is to end by itself."""

    name: str
    command: tuple[str, ...]
    own: Mapping[str, str]
    dropped: frozenset[str] = frozenset()
    once: bool = False

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in self.dropped}
        return {**inherited, **self.own}

    def agrees(self, process: Process) -> bool:
        """Whether a process was started as this part would be started now."""
        return process.command == self.command and has_variables(process, self.own)


def has_variables(process: Process, variables: Mapping[str, str]) -> bool:
    """Whether a process was started with these, apart from those in which one shell may differ from another."""
    found = process.environment
    return all(found.get(name) == value for name, value in variables.items() if name not in OF_THE_SHELL)


def part_played(process: Process) -> str:
    """The name of the part that a process of a desk plays; "" for what a part has started."""
    name = process.environment.get(PART_VARIABLE, "")
    signature = SIGNATURES.get(name, ())
    return name if signature and process.command[1 : 1 + len(signature)] == signature else ""


def parts_of(settings: DeskSettings, *, provision: bool = False) -> list[Part]:
    """The parts that run on this machine. Several servers have one desk with services: what is declared is what that
    one declares, and the others provision nothing. Raises InputError as `environment` does."""
    makers = {"server": _server, "worker": _worker, "watch": _watch}
    if provision and "services" in settings.parts:
        makers["provision"] = _provision
    return [makers[name](settings) for name in SIGNATURES if name in (*settings.parts, "provision") and name in makers]


def keeper_variables(settings: DeskSettings) -> dict[str, str]:
    """What a keeper is started with: by them the next `up` finds out whether it keeps what is wanted."""
    variables = {**environment(settings), **_marks(settings, "keeper"), CODE_VARIABLE: code_version()}
    return {**variables, KIND_VARIABLE: _kind(settings), SETTINGS_VARIABLE: settings.model_dump_json()}


def _server(settings: DeskSettings) -> Part:
    own = {**environment(settings), **_marks(settings, "server"), **SERVER_ENVIRONMENT, CODE_VARIABLE: code_version()}
    own[KIND_VARIABLE] = _kind(settings)
    if "services" not in settings.parts:
        own["PREFECT__SERVER_WEBSERVER_ONLY"] = "1"
    return Part(
        name="server",
        command=server_command("flows.desk.server.app:create_app", settings.host, settings.port),
        own=own,
    )


def _worker(settings: DeskSettings) -> Part:
    options = ("--pool", settings.pool, "--type", "process", "--name", worker_name())
    return Part(
        name="worker",
        command=python("prefect", "worker", "start", *options, "--no-create-pool-if-not-found"),
        own={**client_environment(settings), **_marks(settings, "worker")},
        dropped=_not_for_runs(settings),
    )


def _watch(settings: DeskSettings) -> Part:
    own = {
        **client_environment(settings),
        **_marks(settings, "watch"),
        CODE_VARIABLE: code_version(),
        SETTINGS_VARIABLE: settings.model_dump_json(),
    }
    return Part(
        name="watch",
        command=python("flows.desk", "watch"),
        own=own,
        dropped=_not_for_runs(settings),
    )


def _provision(settings: DeskSettings) -> Part:
    own = {
        **client_environment(settings),
        **_marks(settings, "provision"),
        SETTINGS_VARIABLE: settings.model_dump_json(),
    }
    return Part(name="provision", command=python("flows.desk", "provision"), own=own, once=True)


def _marks(settings: DeskSettings, name: str) -> dict[str, str]:
    return {MARK: str(desk_home()), PART_VARIABLE: name, PLACE_VARIABLE: place_of_records(settings)}


def _not_for_runs(settings: DeskSettings) -> frozenset[str]:
    """Variables of the server and of blocks that a flow run has no use for: secrets are among them."""
    of_server = environment(settings).keys() - client_environment(settings).keys()
    of_server |= {name for name in os.environ if name.startswith(OF_THE_SERVER)}
    of_blocks = {variable for block in settings.blocks for variable in block.secrets.values()}
    return frozenset({DATABASE_URL, REDIS_URL, SETTINGS_VARIABLE, CODE_VARIABLE, *of_server, *of_blocks})


def _kind(settings: DeskSettings) -> str:
    """What is told of a server by variables that are there or not."""
    chosen = {"services": "services" in settings.parts, "redis": settings.redis, "password": bool(os.environ.get(AUTH))}
    return " ".join(name for name, there in chosen.items() if there)


def place_of_records(settings: DeskSettings) -> str:
    """Names the database, without what is secret in its address: runs that one knows mean nothing to another."""
    if settings.database == "sqlite":
        return "sqlite"
    address = urlsplit(os.environ.get(DATABASE_URL, ""))
    return f"postgresql {address.hostname}:{address.port or 5432}{address.path}"


def code_version() -> str:
    """Names what a long-lived process has loaded: our modules, and the version of Prefect."""
    digest = xxhash.xxh3_128(importlib.metadata.version("prefect").encode())
    for path in sorted(path for room in SOURCES for path in (CHECKOUT / room).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
