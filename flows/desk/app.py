"""The server of the desk, for uvicorn's `--factory`: Prefect's own, which knows our blocks too and refuses recipes that
cannot be valid."""

from prefect.server.api.server import create_app as prefect_app

import flows.desk.blocks  # noqa: F401  (a block that is imported is registered when the server starts)
from flows.desk.recipe_check import RecipeCheck


def create_app() -> RecipeCheck:
    """An ASGI application."""
    return RecipeCheck(prefect_app())
