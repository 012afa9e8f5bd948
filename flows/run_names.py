"""Names of flow runs, from parameters as they came: whether they are any good is found out later."""

from collections.abc import Callable, Mapping
from typing import Any

from prefect.runtime import flow_run

from stages.recipe import Recipe

UNKNOWN = "?"


def named(template: str) -> Callable[[], str]:
    """The name of a flow run: `template` with its parameters, where {recipe} is the recipe's label."""

    def name() -> str:
        given = flow_run.parameters
        shown = {each: _label(value) if each == "recipe" else str(value) for each, value in given.items()}
        return template.format_map(_Known(shown))

    return name


class _Known(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return UNKNOWN


def _label(recipe: Any) -> str:
    if isinstance(recipe, Recipe):
        return recipe.name
    return str(recipe.get("name", UNKNOWN)) if isinstance(recipe, Mapping) else UNKNOWN
