"""The desk's settings: `deployments/desk.toml`, and the environment that they make for every process of the desk.

Nothing here imports Prefect. No secret stands in a setting: addresses that hold a password, and what blocks keep
secret, come from environment variables.
"""

import importlib.util
import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import Field, ValidationError, field_validator, model_validator

from data.errors import InputError
from flows.desk.names import HEARTBEAT
from stages.config import StageConfig
from stages.tables import faults, read_tables

CHECKOUT = Path(__file__).resolve().parents[2]
SETTINGS = Path("deployments/desk.toml")
DESK = "desk"  # folder in PREFECT_HOME
DATABASE_URL = "LONGHAUL_DATABASE_URL"
REDIS_URL = "LONGHAUL_REDIS_URL"
AUTH = "PREFECT_SERVER_API_AUTH_STRING"
CLIENT_AUTH = "PREFECT_API_AUTH_STRING"
ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
EVENT_DAYS = 30  # most of the rows are events; a month of them is kept even where runs are kept for longer
HEARTBEAT_EVENT_DAYS = 1
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LAST = "l"
CRON_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, (LAST,)),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 7, (*DAYS, LAST)),
)


class BlockSettings(StageConfig):
    """A block that the desk keeps on the server: who is told, by which way."""

    type: str = Field(description="Slug of the block's type, such as slack-webhook, custom-webhook or email")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="The block's name: small letters, digits, dashes")
    fields: dict[str, Any] = Field(default={}, description="Fields that are no secret")
    secrets: dict[str, str] = Field(
        default={}, description="Secret fields, each with the environment variable that holds it"
    )

    @property
    def slug(self) -> str:
        """What `notify` calls it."""
        return f"{self.type}/{self.name}"


class DeskSettings(StageConfig):
    """Everything about the desk that a user may choose."""

    host: str = Field(default="127.0.0.1", description="Address that the server listens on")
    port: int = Field(default=4200, ge=1, le=65535, description="Port that the server listens on")
    parts: tuple[Literal["server", "services", "worker", "watch"], ...] = Field(
        default=("server", "services", "worker", "watch"),
        description="What runs here; elsewhere ['worker', 'watch'], or ['server'] where database and redis are shared",
    )
    pool: str = Field(default="longhaul", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="Name of the work pool")
    training_runs: int = Field(default=1, ge=1, description="Pipelines and stages that run at a time")
    evaluation_runs: int = Field(default=1, ge=1, description="Evaluations that run at a time, beside those")
    worker_poll_seconds: float = Field(default=2.0, gt=0, description="How often the worker asks for work")
    heartbeat_seconds: int = Field(default=30, ge=30, description="How often a flow run says that it is alive")
    crashed_after_seconds: int = Field(
        default=90, ge=60, description="A flow run that has not said so for this long is marked crashed"
    )
    resumes: int = Field(
        default=3, ge=0, description="How often a crashed run of a deployment is scheduled again by itself; 0: never"
    )
    stalled_after_minutes: float = Field(
        default=60.0, gt=0, description="A run whose journal is silent for this long is reported as stalled"
    )
    disk_least_share: float = Field(default=0.05, ge=0, lt=1, description="Share of the disk below which one is told")
    disk_least_bytes: int = Field(default=2_000_000_000, ge=0, description="Free bytes below which one is told")
    keep_days: int = Field(default=90, ge=1, description="Days for which the server keeps finished flow runs")
    root: str = Field(default=".", description="Folder that holds artifacts/ and runs/")
    recipes: tuple[str, ...] = Field(
        default=("deployments/recipes/demo.toml", "deployments/recipes/tiny.toml"),
        min_length=1,
        description="Each gets a deployment of its pipeline; the first fills the forms of the other deployments",
    )
    regression_cron: str = Field(default="0 3 * * *", description="When the regression run starts")
    regression_timezone: str = Field(default="UTC", description="Time zone of that")
    database: Literal["sqlite", "postgresql"] = Field(
        default="sqlite", description=f"Where the server keeps its records; {DATABASE_URL} holds PostgreSQL's address"
    )
    redis: bool = Field(
        default=False, description=f"Messages through Redis, for several servers; {REDIS_URL} holds its address"
    )
    notify: tuple[str, ...] = Field(
        default=(), description="Blocks, as type/name, that are told of whatever goes wrong"
    )
    blocks: tuple[BlockSettings, ...] = Field(default=(), description="Blocks that the desk keeps on the server")

    @field_validator("regression_timezone")
    @classmethod
    def _is_a_time_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            raise ValueError(f"there is no time zone {name!r}; an example is Europe/Berlin") from None
        return name

    @field_validator("regression_cron")
    @classmethod
    def _is_a_cron_line(cls, line: str) -> str:
        fields = line.split()
        if len(fields) != len(CRON_FIELDS):
            raise ValueError(f"a cron line has five fields: {', '.join(name for name, *_ in CRON_FIELDS)}")
        for text, (name, least, most, words) in zip(fields, CRON_FIELDS, strict=True):
            numbers = [int(number) for number in re.findall(r"(?<!/)\b\d+", text)]
            known = all(word in words for word in re.findall(r"[^\W\d]+", text.lower()))
            steps = not re.search(r"/(?!0*[1-9])", text)
            in_bounds = all(least <= number <= most for number in numbers)
            if not (re.fullmatch(r"[\w*,/#-]+", text) and known and steps and in_bounds):
                raise ValueError(f"{text!r} is no {name} of a cron line; it takes {least} to {most}")
        return line

    @model_validator(mode="after")
    def _fits_together(self) -> "DeskSettings":
        if self.crashed_after_seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                f"crashed_after_seconds={self.crashed_after_seconds} must be at least twice heartbeat_seconds="
                f"{self.heartbeat_seconds}: one heartbeat that is late is no crash"
            )
        if len({block.slug for block in self.blocks}) < len(self.blocks):
            raise ValueError("two of the blocks have the same type and name")
        if not self.parts:
            raise ValueError("parts is empty: nothing would run here")
        if "services" in self.parts and "server" not in self.parts:
            raise ValueError("parts: services run in the process of the server; write both")
        if "server" in self.parts and "services" not in self.parts and not self.redis:
            raise ValueError("parts: a server without services needs redis = true, and services in another desk")
        if self.redis and self.database != "postgresql":
            raise ValueError('redis = true is for several servers, and they need database = "postgresql"')
        return self


def load_settings(path: Path, settings: Sequence[str] = ()) -> DeskSettings:
    """The settings in a file, with `field=value` settings over them. Raises InputError for anything a user can mend."""
    tables = read_tables(path, "desk file", f"{SETTINGS} is one", settings)
    try:
        found = DeskSettings.model_validate(tables)
    except ValidationError as error:
        raise InputError(f"{path} does not hold valid settings:\n{faults(error, DeskSettings, 'desk')}") from None
    if not is_loopback(found.host):
        _require_password(found)
    return found


def _require_password(settings: DeskSettings) -> None:
    if "server" in settings.parts and not os.environ.get(AUTH):
        raise InputError(
            f"host = {settings.host!r} lets other machines reach the server: set the environment variable {AUTH} "
            "(user:password) first, or host to 127.0.0.1"
        )
    if not os.environ.get(AUTH) and not os.environ.get(CLIENT_AUTH):
        raise InputError(
            f"host = {settings.host!r}: the server there asks for a password; set the environment variable "
            f"{CLIENT_AUTH} to its user:password"
        )


def desk_home() -> Path:
    """Where the desk keeps its state and its logs."""
    return Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser().resolve() / DESK


def address(settings: DeskSettings) -> str:
    """Where a browser on this machine finds the desk."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def api_url(settings: DeskSettings) -> str:
    return f"{address(settings)}/api"


def environment(settings: DeskSettings) -> dict[str, str]:
    """The variables of Prefect for the desk's server, to be put over the inherited ones. Some hold secrets. Raises
    InputError for a variable or a package that the settings need and that is not there."""
    variables = {
        **client_environment(settings),
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_UI_API_URL": os.environ.get("PREFECT_UI_API_URL", api_url(settings)),
        "PREFECT_SERVER_API_HOST": settings.host,
        "PREFECT_SERVER_API_PORT": str(settings.port),
        ORIGINS: os.environ.get(ORIGINS, _origins(settings)),
        **_retention(settings),
    }
    if settings.database == "postgresql":
        variables["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = _postgresql_url()
    if settings.redis:
        variables |= _redis()
    return variables


def client_environment(settings: DeskSettings) -> dict[str, str]:
    """The part of `environment` that the worker, the watch and flow runs need: no address of a database."""
    direct = ",".join(os.environ.get(name, "") for name in ("NO_PROXY", "no_proxy")) + ",127.0.0.1,localhost,::1"
    hosts = ",".join(dict.fromkeys(filter(None, direct.split(","))))
    variables = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_API_URL": api_url(settings),
        "PREFECT_WORKER_QUERY_SECONDS": f"{settings.worker_poll_seconds:g}",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(settings.heartbeat_seconds),
        "NO_PROXY": hosts,
        "no_proxy": hosts,
    }
    if auth := os.environ.get(AUTH) or os.environ.get(CLIENT_AUTH):
        variables[CLIENT_AUTH] = auth
    return variables


def _origins(settings: DeskSettings) -> str:
    """Whose pages may ask the server for something: its own, by every name that a browser here has for it. By Prefect's
    default it is whatever page of the internet somebody on this machine opens."""
    here = (f"http://{host}:{settings.port}" for host in ("127.0.0.1", "localhost", "[::1]"))
    behind = (urlsplit(os.environ.get(name, "")) for name in ("PREFECT_UI_API_URL", "PREFECT_UI_URL"))
    proxies = (f"{place.scheme}://{place.netloc}" for place in behind if place.netloc)
    return ",".join(dict.fromkeys((address(settings), *here, *proxies)))


def _retention(settings: DeskSettings) -> dict[str, str]:
    """What Prefect's own tables keep: runs with their logs and artifacts, events for a month at most."""
    day = int(timedelta(days=1).total_seconds())
    return {
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(settings.keep_days * day),
        "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": f"P{min(settings.keep_days, EVENT_DAYS)}D",  # it takes no seconds
        "PREFECT_SERVER_SERVICES_DB_VACUUM_EVENT_RETENTION_OVERRIDES": (
            f'{{"{HEARTBEAT}": {HEARTBEAT_EVENT_DAYS * day}}}'
        ),
    }


def _postgresql_url() -> str:
    url = os.environ.get(DATABASE_URL, "")
    _require_readable(url, DATABASE_URL)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise InputError(
            f'database = "postgresql" needs its address in the environment variable {DATABASE_URL}, such as '
            "postgresql://user:password@host:5432/prefect" + (" (what is there begins otherwise)" if url else "")
        )
    return f"postgresql+asyncpg://{rest}"


def _redis() -> dict[str, str]:
    if importlib.util.find_spec("prefect_redis") is None:
        raise InputError("redis = true needs the package prefect-redis: pip install -c constraints.txt -e '.[redis]'")
    url = os.environ.get(REDIS_URL, "")
    _require_readable(url, REDIS_URL)
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise InputError(
            f"redis = true needs its address in the environment variable {REDIS_URL}, such as "
            "redis://:password@host:6379/0" + (" (what is there begins otherwise)" if url else "")
        )
    return {
        "PREFECT_MESSAGING_BROKER": "prefect_redis.messaging",
        "PREFECT_MESSAGING_CACHE": "prefect_redis.messaging",
        "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "prefect_redis.ordering",
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect_redis.lease_storage",
        "PREFECT_SERVER_DOCKET_URL": url,
        "PREFECT_REDIS_MESSAGING_URL": url,
    }


def _require_readable(url: str, variable: str) -> None:
    """Raises InputError, without anything of the address: what cannot be read in it may be the password."""
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise InputError(
            f"the address in the environment variable {variable} cannot be read; in its user and password, / : @ ? # [ "
            "are written as %2F %3A %40 %3F %23 %5B"
        ) from None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
