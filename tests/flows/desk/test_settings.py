"""The desk's file, and the environment that it makes."""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from data.errors import InputError
from flows.desk.settings import SETTINGS, DeskSettings, api_url, client_environment, environment, load_settings
from stages.config import StageConfig

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PREFECT_", "LONGHAUL_")) or name.lower() == "no_proxy":
            monkeypatch.delenv(name)


def written(folder: Path, text: str) -> Path:
    path = folder / "desk.toml"
    path.write_text(text)
    return path


def test_the_file_in_the_repository_is_valid_and_its_recipes_are_there() -> None:
    settings = load_settings(REPOSITORY / SETTINGS)
    assert all((REPOSITORY / recipe).exists() for recipe in settings.recipes)


@pytest.mark.parametrize("model", [DeskSettings, DeskSettings.model_fields["blocks"].annotation.__args__[0]])
def test_every_field_is_described(model: type[StageConfig]) -> None:
    assert all(field.description for field in model.model_fields.values())


@pytest.mark.parametrize(
    ("text", "sets", "words"),
    [
        ("", ["prt=1"], "did you mean port?"),
        ("port = 0", [], "port"),
        ("port = 70000", [], "port"),
        ("[[blocks]]\ntype = 'slack-webhook'\nnam = 'x'", [], "did you mean name?"),
        ("crashed_after_seconds = 100", ["heartbeat_seconds=60"], "one heartbeat that is late"),
        ("regression_timezone = 'Europe/Atlantis'", [], "Europe/Atlantis"),
        ("regression_cron = '0 3 * *'", [], "five fields"),
        ("regression_cron = '0 24 * * *'", [], "no hour"),
        ("regression_cron = '0 3 0 * *'", [], "no day of the month"),
        ("regression_cron = '5,61 3 * * *'", [], "no minute"),
        ("regression_cron = '0 3 * * mon;fri'", [], "no day of the week"),
        ("regression_cron = '0 3 * * monday'", [], "no day of the week"),
        ("regression_cron = '0 3 * mon *'", [], "no month"),
        ("regression_cron = 'R 3 * * *'", [], "no minute"),
        ("regression_cron = '*/0 3 * * *'", [], "no minute"),
        ("parts = ['services']", [], "write both"),
        ("parts = ['server']", [], "redis"),
        ("redis = true", [], "postgresql"),
        ("host = '0.0.0.0'", [], "PREFECT_SERVER_API_AUTH_STRING"),
        ("host = 'desk.example.org'", [], "PREFECT_SERVER_API_AUTH_STRING"),
        ("host = 'desk.example.org'\nparts = ['worker']", [], "PREFECT_API_AUTH_STRING"),
        ("recipes = []", [], "recipes"),
        ("port = ", [], "cannot be read as a desk file"),
    ],
)
def test_what_cannot_be_is_refused_in_words(tmp_path: Path, text: str, sets: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_settings(written(tmp_path, text), sets)


@pytest.mark.parametrize("line", ["*/90 0-6/2 * JAN-mar,7 MON#1", "0 3 L * 1-5", "0 */06 * * L5", "59 23 31 12 7"])
def test_lines_of_cron_that_may_be(line: str) -> None:
    assert DeskSettings(regression_cron=line).regression_cron == line


def test_other_machines_may_come_in_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "me:secret")
    settings = load_settings(written(tmp_path, "host = '0.0.0.0'\nport = 4300"))
    assert api_url(settings) == "http://127.0.0.1:4300/api"
    assert client_environment(settings)["PREFECT_API_AUTH_STRING"] == "me:secret"


@pytest.mark.parametrize(
    "url", ["mysql://me:hidden@host/db", "postgresql://me:hidden/1@host/db", "postgresql://me:[hidden@host/db"]
)
def test_a_fault_repeats_no_secret(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_DATABASE_URL", url)
    with pytest.raises(InputError, match="LONGHAUL_DATABASE_URL") as caught:
        environment(DeskSettings(database="postgresql"))
    assert "hidden" not in "".join(traceback.format_exception(caught.value))


def test_no_page_of_another_site_may_ask_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def origins() -> list[str]:
        return environment(DeskSettings(port=4300))["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"].split(",")

    here = ["http://127.0.0.1:4300", "http://localhost:4300", "http://[::1]:4300"]
    assert origins() == here
    monkeypatch.setenv("PREFECT_UI_API_URL", "https://desk.example.org/prefect/api")
    assert origins() == [*here, "https://desk.example.org"]
    monkeypatch.setenv("PREFECT_SERVER_CORS_ALLOWED_ORIGINS", "https://other.example.org")
    assert origins() == ["https://other.example.org"], "what somebody has set is left alone"


@pytest.mark.parametrize("variables", [{}, {"LONGHAUL_DATABASE_URL": "postgresql://me:secret@host/db"}])
def test_what_redis_and_postgresql_need_is_named(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="LONGHAUL_REDIS_URL" if variables else "LONGHAUL_DATABASE_URL"):
        environment(DeskSettings(database="postgresql", redis=True))


def test_prefect_reads_the_environment_as_it_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Prefect's own settings, in a process of its own: a variable that it has renamed or reads otherwise is found
    here, and not by a server that does not start."""
    monkeypatch.setenv("LONGHAUL_DATABASE_URL", "postgresql://me:se%2Fcret@db.example.org:5433/prefect")
    monkeypatch.setenv("LONGHAUL_REDIS_URL", "rediss://:red%2Fis@redis.example.org/2")
    settings = DeskSettings(database="postgresql", redis=True, keep_days=10, worker_poll_seconds=3.5)
    found = prefect_settings(environment(settings))
    server = found["server"]
    assert server["database"]["connection_url"] == "postgresql+asyncpg://me:se%2Fcret@db.example.org:5433/prefect"
    assert server["analytics_enabled"] is False
    assert server["services"]["db_vacuum"]["enabled"] == ["events", "flow_runs"]
    assert server["services"]["db_vacuum"]["retention_period"] == "P10D"
    assert server["services"]["db_vacuum"]["event_retention_overrides"] == {"prefect.flow-run.heartbeat": "P1D"}
    assert server["events"]["retention_period"] == "P10D"
    assert server["events"]["causal_ordering"] == "prefect_redis.ordering"
    assert server["events"]["messaging_broker"] == "prefect_redis.messaging"
    assert server["events"]["messaging_cache"] == "prefect_redis.messaging"
    assert server["concurrency"]["lease_storage"] == "prefect_redis.lease_storage"
    assert server["docket"]["url"] == "rediss://:red%2Fis@redis.example.org/2"
    assert server["api"]["cors_allowed_origins"].startswith("http://127.0.0.1:4200,")
    assert server["ui"]["api_url"] == found["api"]["url"] == "http://127.0.0.1:4200/api"
    assert found["worker"]["query_seconds"] == 3.5
    assert found["flows"]["heartbeat_frequency"] == 30
    assert found["redis"] == "rediss://:red%2Fis@redis.example.org/2"


def prefect_settings(variables: dict[str, str]) -> dict:
    code = """
import json, prefect.settings, prefect_redis.client
found = prefect.settings.get_current_settings().model_dump(mode="json", context={"include_secrets": True})
found["redis"] = prefect_redis.client.RedisMessagingSettings().url
database = prefect.settings.PREFECT_API_DATABASE_CONNECTION_URL.value()
found["server"]["database"]["connection_url"] = database
print(json.dumps(found, default=lambda value: sorted(value) if isinstance(value, set) else str(value)))
"""
    shell = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**shell, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict = json.loads(done.stdout)
    found["server"]["services"]["db_vacuum"]["enabled"].sort()
    return found


def test_no_process_but_the_server_knows_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_DATABASE_URL", "postgresql://me:secret@host/db")
    settings = DeskSettings(database="postgresql")
    assert "secret" in str(environment(settings))
    assert "secret" not in str(client_environment(settings))


def test_the_environment_is_the_same_within_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper compares what it was started with to what it would be started with."""
    settings = DeskSettings()
    monkeypatch.setenv("no_proxy", "example.org")
    made = environment(settings)
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    assert environment(settings) == made
    assert made["NO_PROXY"] == "example.org,127.0.0.1,localhost,::1"
