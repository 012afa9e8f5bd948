"""The server of the desk, for uvicorn's `--factory`: Prefect's own, which knows our blocks too, refuses recipes that
cannot be valid, and takes no run for dead because it was away itself."""

from prefect.server.api.server import create_app as prefect_app

import flows.desk.objects.blocks  # noqa: F401  (a block that is imported is registered when the server starts)
from flows.desk.server.away import with_new_periods
from flows.desk.server.recipe_check import RecipeCheck


def create_app() -> RecipeCheck:
    """An ASGI application."""
    app = prefect_app()
    app.router.lifespan_context = with_new_periods(app.router.lifespan_context)
    return RecipeCheck(app)
