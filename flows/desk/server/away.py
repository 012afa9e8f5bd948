"""While the server was away it heard of no run, so a run has to be silent for the whole period again before it counts
as dead.

Prefect evaluates at once, when it starts, what was due meanwhile: every run that a server missed for longer than the
period would be marked crashed before its next heartbeat can arrive, however well it works.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from prefect.server.database import provide_database_interface

from flows.desk.objects.automations import CRASH_ZOMBIES

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def with_new_periods(lifespan: Lifespan) -> Lifespan:
    """The life of a server, before which every run that works is given its period anew."""

    @asynccontextmanager
    async def begin_and_end(app: Any) -> AsyncIterator[Any]:
        with suppress(sa.exc.OperationalError, sa.exc.ProgrammingError):  # an empty database has no tables yet
            await begin_periods_anew(datetime.now(UTC))
        async with lifespan(app) as state:
            yield state

    return begin_and_end


async def begin_periods_anew(now: datetime) -> None:
    """Let every period in which a heartbeat is awaited end no earlier than if it began `now`."""
    db = provide_database_interface()
    of_ours = sa.select(db.Automation.id).where(db.Automation.name == CRASH_ZOMBIES)
    async with db.session_context(begin_transaction=True) as session:
        awaited = sa.select(db.AutomationBucket).where(db.AutomationBucket.automation_id.in_(of_ours))
        for bucket in await session.scalars(awaited):
            bucket.end = max(bucket.end, now + (bucket.end - bucket.start))
