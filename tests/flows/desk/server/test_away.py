"""What a user relies on: no run is taken for dead because the server was away."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import sqlalchemy as sa
from prefect.server.database import provide_database_interface
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.server.database.dependencies import temporary_database_config
from prefect.server.events.schemas.automations import EventTrigger, Posture

from flows.desk.objects.automations import CRASH_ZOMBIES
from flows.desk.server.away import begin_periods_anew, watch_clock, with_new_periods

PERIOD = timedelta(seconds=90)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
# When the periods of the runs have ended, or will.
ENDS = {"missed": NOW - timedelta(hours=1), "due": NOW, "fresh": NOW + timedelta(seconds=80)}


@asynccontextmanager
async def database(folder: Path) -> AsyncIterator[None]:
    """One with these tables, and in it our automation and another, each with a period for every run."""
    with temporary_database_config(AioSqliteConfiguration(f"sqlite+aiosqlite:///{folder}/prefect.db")):
        db = provide_database_interface()
        engine = await db.engine()
        async with engine.begin() as connection:
            await connection.run_sync(
                db.Base.metadata.create_all, [db.Automation.__table__, db.AutomationBucket.__table__]
            )
        async with db.session_context(begin_transaction=True) as session:
            for name in (CRASH_ZOMBIES, "a user's own"):
                trigger = EventTrigger(posture=Posture.Proactive, threshold=1, within=PERIOD)
                automation = db.Automation(id=uuid.uuid4(), name=name, trigger=trigger, actions=[])
                session.add(automation)
                await session.flush()
                for run, end in ENDS.items():
                    session.add(
                        db.AutomationBucket(
                            automation_id=automation.id,
                            trigger_id=trigger.id,
                            bucketing_key=[run],
                            start=end - PERIOD,
                            end=end,
                            count=0,
                        )
                    )
        yield


async def ends(name: str) -> dict[str, datetime]:
    db = provide_database_interface()
    async with db.session_context() as session:
        rows = await session.execute(
            sa.select(db.AutomationBucket.bucketing_key, db.AutomationBucket.end)
            .join(db.Automation, db.Automation.id == db.AutomationBucket.automation_id)
            .where(db.Automation.name == name)
        )
        return {key[0]: end for key, end in rows}


def test_after_an_absence_of_the_server_every_run_has_its_period_anew(tmp_path: Path) -> None:
    async def absence() -> None:
        async with database(tmp_path):
            await begin_periods_anew(NOW)
            assert await ends(CRASH_ZOMBIES) == dict.fromkeys(ENDS, NOW + PERIOD)
            assert await ends("a user's own") == ENDS
            later = NOW + timedelta(hours=1)
            await begin_periods_anew(later)
            assert await ends(CRASH_ZOMBIES) == dict.fromkeys(ENDS, later + PERIOD), "a period does not grow"

    asyncio.run(absence())


def test_a_clock_that_jumps_forward_is_no_silence_and_other_clocks_are_left_alone() -> None:
    """It is set, or the machine has slept. steps: what the calendar says of each second by the other clock."""
    steps = iter([1.0, 1.5, 3600.0, 1.0, -7200.0, 1.0, 9.0, 1.0, 12.0, 1.0])
    passed, seconds, begun = 0.0, 0, list[float]()

    def calendar() -> float:
        return 1e9 + passed

    def clock() -> float:
        return float(seconds)

    async def begin_anew(now: datetime) -> None:
        begun.append(now.timestamp())

    async def pass_time() -> None:
        nonlocal passed, seconds
        watching = asyncio.create_task(watch_clock(calendar, clock, begin_anew, 0.0))
        await asyncio.sleep(0)
        for step in steps:
            passed, seconds = passed + step, seconds + 1
            for _ in range(3):
                await asyncio.sleep(0)
        watching.cancel()

    asyncio.run(pass_time())
    assert begun == [1e9 + 3602.5, 1e9 + 3602.5 + 1.0 - 7200.0 + 1.0 + 9.0 + 1.0 + 12.0]


def test_a_server_begins_with_that_and_an_empty_database_is_none_of_its_business(tmp_path: Path) -> None:
    seen: list[dict[str, datetime]] = []

    @asynccontextmanager
    async def life(app: object) -> AsyncIterator[None]:
        seen.append(await ends(CRASH_ZOMBIES))
        yield

    async def begin() -> None:
        async with database(tmp_path), with_new_periods(life)(None):
            assert min(seen[0].values()) > datetime.now(UTC)
        empty = AioSqliteConfiguration(f"sqlite+aiosqlite:///{tmp_path}/empty.db")
        with temporary_database_config(empty):
            async with with_new_periods(nothing)(None):
                pass

    @asynccontextmanager
    async def nothing(app: object) -> AsyncIterator[None]:
        yield

    asyncio.run(begin())
