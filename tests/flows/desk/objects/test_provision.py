"""A user relies on: one command puts everything on the server, a second one changes nothing, and neither undoes what
the user did in the UI; what is declared no longer goes, and what is the user's stays."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import pytest
import yaml
from prefect import flow
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.schemas.automations import AutomationCore

from data.errors import InputError
from deployments import steps
from flows.desk.doctor.findings import Level
from flows.desk.doctor.objects import of_objects
from flows.desk.objects import definitions
from flows.desk.objects import provision as provisioning
from flows.desk.objects.automations import NAME
from flows.desk.objects.blocks import find_document
from flows.desk.objects.definitions import CHECKOUT, PREFECT_FILE
from flows.desk.objects.provision import provision
from flows.desk.objects.record import VARIABLE
from flows.desk.settings import SETTINGS, BlockSettings, DeskSettings, load_settings
from stages.recipe import STAGES, Recipe

SECRET = "correct-horse-battery"
HOOK = BlockSettings(type="webhook", name="ops", secrets={"url": "OPS_URL"})
NIGHTLY, PIPELINE, TRIGGERED = "regression/nightly", "pipeline/demo", "evaluate-checkpoint/on-healthy"
TRIGGER = NAME + "evaluate a checkpoint that has become healthy"
ZOMBIES = NAME + "crash runs without heartbeat"


@pytest.fixture(autouse=True)
def file(api: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A prefect.yaml with one stage of all."""
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setenv("OPS_URL", f"http://127.0.0.1:1/{SECRET}")
    whole = yaml.safe_load(PREFECT_FILE.read_text())
    whole["deployments"] = [each for each in whole["deployments"] if each["name"] not in set(STAGES) - {"curate"}]
    short = tmp_path / "prefect.yaml"
    short.write_text(yaml.safe_dump(whole))
    monkeypatch.setattr(definitions, "PREFECT_FILE", short)
    return short


def settings(**changes: Any) -> DeskSettings:
    return DeskSettings(**{"blocks": (HOOK,), "notify": (HOOK.slug,), **changes})


def provisioned(**changes: Any) -> list[str]:
    return asyncio.run(provision(settings(**changes)))


def asked(ask: Callable[[PrefectClient], Coroutine[Any, Any, Any]]) -> Any:
    async def answer() -> Any:
        async with get_client() as client:
            return await ask(client)

    return asyncio.run(answer())


def deployment(slug: str) -> DeploymentResponse:
    found: DeploymentResponse = asked(lambda client: client.read_deployment_by_name(slug))
    return found


def automation(name: str) -> Any:
    (found,) = asked(lambda client: client.read_automations_by_name(name))
    return found


def update(slug: str, **fields: Any) -> None:
    there = deployment(slug).id
    asked(lambda client: client.update_deployment(there, DeploymentUpdate(**fields)))


def test_what_a_user_changed_in_the_ui_stays_until_the_same_changes_here() -> None:
    """In turn: after another call, after a change of something else in the checkout, after a change of the same."""
    provisioned()
    (schedule,) = deployment(NIGHTLY).schedules
    edited = {"active": False, "schedule": CronSchedule(cron="30 4 * * 1", timezone="Europe/Berlin")}
    asked(lambda client: client.update_deployment_schedule(schedule.deployment_id, schedule.id, **edited))
    parameters = deployment(PIPELINE).parameters
    mine = {**parameters, "recipe": {**parameters["recipe"], "pretrain": {"num_steps": 7}}}
    update(PIPELINE, parameters=mine, description="mine", paused=True)
    for found in (automation(TRIGGER), automation(ZOMBIES)):
        asked(lambda client, found=found: client.pause_automation(found.id))
    (queue,) = (each for each in asked(lambda client: client.read_work_queues("longhaul")) if each.name == "training")
    asked(lambda client: client.update_work_queue(queue.id, concurrency_limit=3))

    assert provisioned() == []
    changed = provisioned(crashed_after_seconds=120, root="/elsewhere")
    assert f"automation {ZOMBIES!r}: updated" in changed
    assert f"deployment {NIGHTLY}: parameters" in changed
    (schedule,) = deployment(NIGHTLY).schedules
    assert (schedule.schedule.cron, schedule.active) == ("30 4 * * 1", False)
    assert automation(ZOMBIES).trigger.within.total_seconds() == 120
    assert not automation(ZOMBIES).enabled and not automation(TRIGGER).enabled
    assert (deployment(PIPELINE).description, deployment(PIPELINE).paused) == ("mine", True)
    assert asked(lambda client: client.read_work_queue(queue.id)).concurrency_limit == 3

    update(PIPELINE, parameters=mine)
    changed = provisioned(root="/elsewhere", regression_cron="0 5 * * *", training_runs=2)
    assert set(changed) == {
        f"deployment {NIGHTLY}: schedules",
        "queue training: 2 at a time",
        f"automation {ZOMBIES!r}: updated",
    }
    (schedule,) = deployment(NIGHTLY).schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone, schedule.active) == ("0 5 * * *", "UTC", False)
    assert deployment(PIPELINE).parameters == mine
    provisioned()
    assert deployment(PIPELINE).parameters == parameters, "the folder has changed back, and with it the parameters"
    assert deployment(PIPELINE).paused


def test_a_schedule_of_the_users_own_stays_alone() -> None:
    provisioned()
    found = deployment(NIGHTLY)
    for there in found.schedules:
        asked(lambda client, there=there: client.delete_deployment_schedule(found.id, there.id))
    mine = CronSchedule(cron="1 1 1 * *", timezone="UTC")
    asked(lambda client: client.create_deployment_schedules(found.id, [(mine, True)]))
    assert provisioned(regression_cron="0 6 * * *") == [f"deployment {NIGHTLY}: schedules"]
    assert [each.schedule.cron for each in deployment(NIGHTLY).schedules] == ["1 1 1 * *"]


def test_edited_parameters_that_a_new_form_refuses_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    provisioned()
    update(PIPELINE, parameters={**deployment(PIPELINE).parameters, "root": "mine"})

    def changed(entrypoint: str) -> tuple[str, dict[str, Any]]:
        name, schema = form(entrypoint)
        root = {**schema["properties"]["root"], "maxLength": 3}
        return name, {**schema, "properties": {**schema["properties"], "root": root}}

    form = definitions.form
    monkeypatch.setattr(definitions, "form", changed)
    assert f"deployment {PIPELINE}: code" in provisioned()
    assert deployment(PIPELINE).parameters["root"] == "."


def test_what_is_declared_no_longer_goes_and_what_is_the_users_stays(tmp_path: Path) -> None:
    renamed = tmp_path / "renamed.toml"
    text = Path("deployments/recipes/tiny.toml").read_text()
    renamed.write_text(text.replace('name = "tiny"', 'name = "slight"'))

    @flow(name="theirs")
    def theirs() -> None:
        """Somebody else's, with our tag."""

    provisioned()
    recipes = ("deployments/recipes/demo.toml", str(renamed))

    async def add(client: PrefectClient) -> None:
        flow_id = await client.create_flow(theirs)
        copied = deployment_of_demo.model_dump(include={"parameters", "entrypoint", "parameter_openapi_schema"})
        await client.create_deployment(flow_id, "own", tags=["longhaul"])
        await client.create_deployment(deployment_of_demo.flow_id, "copy", tags=["longhaul"], **copied)
        mine = automation_of_zombies.model_dump(exclude={"id", "name"})
        await client.create_automation(AutomationCore(name=NAME + "mine", **mine))

    deployment_of_demo, automation_of_zombies = deployment(PIPELINE), automation(ZOMBIES)
    asked(add)
    changed = provisioned(recipes=recipes, notify=())
    told = [line for line in changed if line.startswith(f"automation '{NAME}tell of") and line.endswith("removed")]
    assert len(told) == 6
    assert {"deployment pipeline/slight: created", "deployment pipeline/tiny: removed"} <= set(changed)
    names = {each.name for each in asked(lambda client: client.read_deployments())}
    assert "tiny" not in names and {"slight", "own", "copy"} <= names
    assert automation(NAME + "mine") and provisioned(recipes=recipes, notify=()) == []


def test_another_checkout_is_deployed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    provisioned()
    monkeypatch.setattr(definitions, "CHECKOUT", Path("/other/checkout"))
    changed = provisioned(root="/other/checkout")
    assert changed == [f"deployment {each.slug}: place" for each in definitions.definitions(settings())]
    found = deployment(PIPELINE)
    (step,) = found.pull_steps or []
    assert found.job_variables["working_dir"] == "/other/checkout"
    assert step == {"prefect.deployments.steps.set_working_directory": {"directory": "/other/checkout"}}


def test_prefects_own_command_deploys_the_same(api: str, tmp_path: Path, file: Path) -> None:
    """By hand, over everything; afterwards there is nothing to be done."""
    provisioned()
    before = deployment(TRIGGERED)
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--prefect-file", str(file), "--all"]
    update(NIGHTLY, description="mine")
    environment = {**os.environ, "PREFECT_API_URL": api, "PREFECT_HOME": str(tmp_path), "DO_NOT_TRACK": "1"}
    environment |= {"PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    result = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "mine" not in str(deployment(NIGHTLY).description)
    volatile = {"updated", "updated_by", "status", "version", "version_id", "branch", "last_polled", "version_info"}
    after = deployment(TRIGGERED)
    assert after.model_dump(exclude=volatile) == before.model_dump(exclude=volatile)
    assert automation(TRIGGER).actions[0].deployment_id == after.id
    assert provisioned() == []


def test_the_build_steps_say_what_provisioning_says() -> None:
    chosen = load_settings(SETTINGS)
    assert steps.read_desk() == definitions.desk_values(chosen)
    assert steps.read_recipe()["name"] == "demo"
    assert steps.read_recipe("deployments/recipes/tiny.toml")["name"] == "tiny"


def test_blocks_are_kept_and_hold_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def url() -> str:
        found: str = asked(lambda client: find_document(HOOK.slug, client)).data["url"]
        return found

    provisioned()
    assert url().endswith(SECRET)
    monkeypatch.setenv("OPS_URL", "http://127.0.0.1:1/changed")
    assert provisioned() == ["block webhook/ops: updated"] and url().endswith("changed")
    monkeypatch.delenv("OPS_URL")
    assert provisioned() == [] and url().endswith("changed"), "the block is there; its variable is not needed"
    kept = asked(lambda client: client.read_variable_by_name(VARIABLE)).value
    assert SECRET not in str(kept) and "changed" not in str(kept)


def test_a_block_that_is_missing_is_told_once_all_else_is_there() -> None:
    absent = BlockSettings(type="slack-webhook", name="team", secrets={"url": "TEAM_URL"})
    blocks = {"blocks": (HOOK, absent), "notify": (HOOK.slug, absent.slug, "secret/ops")}
    with pytest.raises(InputError) as failure:
        provisioned(evaluation_runs=4, **blocks)
    first, *more = str(failure.value).splitlines()
    assert "slack-webhook/team: set the environment variable TEAM_URL" in first
    assert [line.partition(" on the")[0] for line in more] == [
        "notify: there is no block slack-webhook/team",
        "notify: there is no block secret/ops",
    ]
    queues = {each.name: each.concurrency_limit for each in asked(lambda client: client.read_work_queues("longhaul"))}
    assert queues["evaluation"] == 4


def test_a_recipe_that_is_not_valid_stops_before_anything_is_done(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('name = "wrong"\n[pretrain]\nnum_stps = 3\n')
    provisioned()
    with pytest.raises(InputError, match="num_stps: unknown key; did you mean num_steps"):
        provisioned(recipes=("deployments/recipes/demo.toml", str(wrong)), training_runs=9)
    with pytest.raises(InputError, match="two of them have the name demo"):
        provisioned(recipes=("deployments/recipes/demo.toml",) * 2)
    assert provisioned() == []


def test_what_fails_half_way_is_not_done_again_over_what_a_user_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("the server has gone")

    provisioned()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(provisioning, "triggers", fails)
        provisioned(root="/half/way")
    mine = {**deployment(PIPELINE).parameters, "root": "mine"}
    update(PIPELINE, parameters=mine)
    assert not [line for line in provisioned(root="/half/way") if PIPELINE in line]
    assert deployment(PIPELINE).parameters == mine


def test_more_recipes_than_a_desk_can_keep_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    text, recipes = Path("deployments/recipes/tiny.toml").read_text(), []
    for number in range(60):
        recipes.append(tmp_path / f"{number}.toml")
        recipes[-1].write_text(text.replace('name = "tiny"', f'name = "tiny-{number}"'))
    with pytest.raises(InputError, match="more than one desk can keep"):
        provisioned(recipes=tuple(map(str, recipes)))
    assert not any(each.name.startswith("tiny-") for each in asked(lambda client: client.read_deployments()))


def test_everything_is_there_at_once_and_a_second_call_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "PREFECT_FILE", PREFECT_FILE)
    provisioned()
    assert provisioned() == []
    pool = asked(lambda client: client.read_work_pool("longhaul"))
    queues = {each.name: each.concurrency_limit for each in asked(lambda client: client.read_work_queues("longhaul"))}
    assert pool.type == "process" and queues == {"default": None, "training": 1, "evaluation": 1}
    names = {"demo", "tiny", *STAGES, "on-healthy", "nightly"}
    found = [each for each in asked(lambda client: client.read_deployments()) if each.name in names]
    assert len(found) == len(names)
    for each in found:
        assert each.tags == ["longhaul"] and each.enforce_parameter_schema and each.work_pool_name == "longhaul"
        assert each.description.endswith(".") and each.parameters["root"] == "."
        assert each.work_queue_name == ("evaluation" if each.name in ("on-healthy", "nightly") else "training")
        assert Recipe.model_validate(each.parameters["recipe"]).name == ("tiny" if each.name == "tiny" else "demo")
        assert each.parameters.get("stage") == (each.name if each.name in STAGES else None)
    (schedule,) = deployment(NIGHTLY).schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone, schedule.active) == ("0 3 * * *", "UTC", True)


def test_the_doctor_sees_what_is_missing_elsewhere_older_or_switched_off(api: str) -> None:
    here = settings(port=urlsplit(api).port)

    def troubles() -> dict[str, Level]:
        return {found.subject: found.level for found in of_objects(here) if found.level is not Level.OK}

    provisioned()
    update(PIPELINE, paused=False)
    for found in (automation(TRIGGER), automation(ZOMBIES)):
        asked(lambda client, found=found: client.resume_automation(found.id))
    assert troubles() == {}

    update(PIPELINE, pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": "/elsewhere"}}])
    nightly, zombies = deployment(NIGHTLY).id, automation(ZOMBIES).id
    asked(lambda client: client.delete_deployment(nightly))
    asked(lambda client: client.pause_automation(zombies))
    here = settings(port=urlsplit(api).port, notify=(HOOK.slug, "webhook/nobody"), root="/elsewhere")
    assert troubles() == {
        f"deployment {PIPELINE}": Level.FAIL,
        f"deployment {NIGHTLY}": Level.FAIL,
        "deployment pipeline/tiny": Level.WARN,
        "deployment stage/curate": Level.WARN,
        f"deployment {TRIGGERED}": Level.WARN,
        "notify": Level.FAIL,
        f"automation {ZOMBIES!r}": Level.WARN,
    }
