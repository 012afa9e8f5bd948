"""While the server was away it heard of no run, so a run has to be silent for the whole period again before it counts
as dead. It was away too while its machine slept; and where somebody has set the clock forward, nobody has been silent.

Prefect evaluates at once what is due by the calendar: every run that a server missed for longer than the period would
be marked crashed before its next heartbeat can arrive, however well it works.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from prefect.server.database import provide_database_interface

from flows.desk.objects.automations import CRASH_ZOMBIES

LOOK_SECONDS = 0.5  # much oftener than Prefect evaluates, which is every 5 s
JUMP_SECONDS = 10.0
# The database is busy for the moment; or it is empty and has no tables yet.
CANNOT = (sa.exc.OperationalError, sa.exc.ProgrammingError)

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def with_new_periods(lifespan: Lifespan) -> Lifespan:
    """The life of a server, before which every run that works is given its period anew, and in which it is whenever the
    clock jumps."""

    @asynccontextmanager
    async def begin_and_end(app: Any) -> AsyncIterator[Any]:
        with suppress(*CANNOT):
            await begin_periods_anew(datetime.now(UTC))
        watching = asyncio.create_task(watch_clock())
        try:
            async with lifespan(app) as state:
                yield state
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    return begin_and_end


async def begin_periods_anew(now: datetime) -> None:
    """Let every period in which a heartbeat is awaited end no earlier than if it began `now`."""
    db = provide_database_interface()
    async with db.session_context(begin_transaction=True) as session:
        for ours in await session.scalars(sa.select(db.Automation).where(db.Automation.name == CRASH_ZOMBIES)):
            within = getattr(ours.trigger, "within", None)
            if within is None:  # somebody has made it another kind of trigger
                continue
            end = now + within
            awaited = (db.AutomationBucket.automation_id == ours.id, db.AutomationBucket.end < end)
            await session.execute(sa.update(db.AutomationBucket).where(*awaited).values(end=end))


async def watch_clock(
    calendar: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    begin_anew: Callable[[datetime], Awaitable[None]] = begin_periods_anew,
    look_seconds: float = LOOK_SECONDS,
) -> None:
    """Begin all periods anew whenever the calendar (Unix seconds) goes on further than time passes by the clock, which
    stands still while the machine sleeps. Until cancelled."""
    ahead = calendar() - clock()
    while True:
        await asyncio.sleep(look_seconds)
        before, ahead = ahead, calendar() - clock()
        if ahead - before >= JUMP_SECONDS:
            with suppress(*CANNOT):
                await begin_anew(datetime.fromtimestamp(calendar(), UTC))
