"""Build steps of deployments/prefect.yaml: what its templates are filled with."""

from pathlib import Path
from typing import Any

from flows.desk.objects.definitions import desk_values, recipe_values
from flows.desk.settings import SETTINGS, load_settings


def read_desk(path: str = "") -> dict[str, Any]:
    """What a desk.toml says, and where the checkout is. path: empty for deployments/desk.toml."""
    return desk_values(load_settings(Path(path or SETTINGS)))


def read_recipe(path: str = "") -> dict[str, Any]:
    """A recipe's name and tables. path: empty for the first recipe of deployments/desk.toml."""
    return recipe_values(Path(path or load_settings(SETTINGS).recipes[0]))
