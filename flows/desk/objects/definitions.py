"""What deployments/prefect.yaml says, filled in for a desk: one definition for each deployment, that of the pipeline
once for each recipe."""

import shlex
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import yaml
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema
from prefect.utilities.templating import apply_values

from data.errors import InputError
from flows.desk.settings import CHECKOUT, DeskSettings
from stages.fingerprint import digest
from stages.recipe import load

PREFECT_FILE = CHECKOUT / "deployments" / "prefect.yaml"
PER_RECIPE = "{{ recipe.name }}"
DIGEST_DIGITS = 8
# Parts of a definition that are brought to the server each on its own: what a user changed in one of them stays when
# another changes here.
PARTS = {
    "code": ("entrypoint", "parameter_openapi_schema"),
    "place": ("pull_steps", "job_variables"),
    "parameters": ("parameters",),
    "schedules": ("schedules",),
    "about": ("description", "tags", "work_pool_name", "work_queue_name"),
}


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A deployment as the checkout wants it. fields: of Prefect's deployment, as JSON, schedules as prefect.yaml has
    them. triggers: of prefect.yaml; they become automations."""

    flow: str
    name: str
    fields: dict[str, Any]
    triggers: tuple[dict[str, Any], ...] = field(default=())

    @property
    def slug(self) -> str:
        """flow/deployment, as Prefect's command line has it."""
        return f"{self.flow}/{self.name}"

    def part(self, name: str) -> dict[str, Any]:
        return {key: self.fields[key] for key in PARTS[name]}

    def digests(self) -> dict[str, str]:
        """Of each part."""
        return {name: digest(self.part(name))[:DIGEST_DIGITS] for name in PARTS}


def definitions(settings: DeskSettings) -> list[Definition]:
    """Every deployment of a desk. Raises InputError for a recipe that is not valid, and for two of one name."""
    file = yaml.safe_load(PREFECT_FILE.read_text(encoding="utf-8"))
    recipes = [recipe_values(Path(path)) for path in settings.recipes]
    names = [recipe["name"] for recipe in recipes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"recipes: two of them have the name {', '.join(sorted(twice))}, which their pipelines need")
    return [
        _definition(entry, file["pull"], settings, recipe)
        for entry in file["deployments"]
        for recipe in (recipes if entry["name"] == PER_RECIPE else recipes[:1])
    ]


def desk_values(settings: DeskSettings) -> dict[str, Any]:
    """What prefect.yaml calls `desk`."""
    root = Path(settings.root).resolve()
    return {
        "checkout": str(CHECKOUT),
        "python": shlex.quote(sys.executable),
        "root": "." if root == CHECKOUT else str(root),
        "regression_cron": settings.regression_cron,
        "regression_timezone": settings.regression_timezone,
    }


def recipe_values(path: Path) -> dict[str, Any]:
    """What prefect.yaml calls `recipe`: its name, and its tables without defaults. Raises InputError."""
    recipe = load(path)
    return {"name": recipe.name, "tables": recipe.tables()}


@cache
def form(entrypoint: str) -> tuple[str, dict[str, Any]]:
    """(name of the flow, JSON schema of its parameters). To find both takes a while."""
    flow: Flow[..., Any] = load_flow_from_entrypoint(entrypoint)
    return flow.name, parameter_schema(flow).model_dump(exclude_unset=True)


def _definition(
    entry: dict[str, Any], pull: list[dict[str, Any]], settings: DeskSettings, recipe: dict[str, Any]
) -> Definition:
    values = {"desk": desk_values(settings), "recipe": recipe}
    triggers = entry.get("triggers", ())  # they hold templates for the server
    filled = apply_values({name: value for name, value in entry.items() if name != "triggers"}, values)
    flow, schema = form(filled["entrypoint"])
    return Definition(
        flow=flow,
        name=filled["name"],
        triggers=tuple(triggers),
        fields={
            "entrypoint": filled["entrypoint"],
            "pull_steps": apply_values(pull, values),
            "parameter_openapi_schema": schema,
            "parameters": filled["parameters"],
            "schedules": filled.get("schedules", []),
            "description": filled["description"],
            "tags": filled["tags"],
            "work_pool_name": settings.pool,
            "work_queue_name": filled["work_pool"]["work_queue_name"],
            "job_variables": filled["work_pool"]["job_variables"],
        },
    )
