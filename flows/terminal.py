"""A flow run from a terminal: a server for it, progress bars, exit codes, and its records kept to the last one."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TypeVar

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)
from stages.console import ConsoleListener, fail

# isort: split
from prefect import tags
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    TaskRunFilter,
    TaskRunFilterStartTime,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import TerminationSignal

from flows.desk.names import TAG
from flows.process import StageFailed
from flows.server import send_what_is_left, server_for_this_run
from stages.errors import FAILED

RECORD_POLLS = 25
RECORD_POLL_SECONDS = 0.2

Listener = Callable[[dict[str, Any]], None]
T = TypeVar("T")


def ignore(event: dict[str, Any]) -> None:
    """For a run that nobody watches in a terminal."""


terminal: ContextVar[Listener] = ContextVar("terminal", default=ignore)


def watching() -> Listener:
    """Who watches this flow run. (A flow that is served is pickled with what it names, and a context variable cannot
    be.)"""
    return terminal.get()


def in_terminal(flow: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `flow()` returns. Ends this process with the exit code of a stage that failed, which has told why."""
    with server_for_this_run() as api, ConsoleListener() as console:
        console.line("prefect", f"{api.removesuffix('/api')} shows this run")
        terminal.set(console)
        try:
            return asyncio.run(_to_record(flow))
        except StageFailed as error:  # told already, in the words of the stage
            sys.exit(error.exit_code if error.exit_code > 0 else FAILED)
        except TerminationSignal:
            fail("terminated; the same command continues")
            sys.exit(128 + signal.SIGTERM)


async def _to_record(flow: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the flow, and see that the server has its logs, its events and the end of each task before an embedded one
    stops."""
    unfinished = TaskRunFilter(
        state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])),
        start_time=TaskRunFilterStartTime(after_=datetime.now(UTC)),
    )
    async with get_client() as client:
        try:
            with tags(TAG):
                return await flow()
        finally:
            await asyncio.to_thread(send_what_is_left)
            for _ in range(RECORD_POLLS):
                if not await client.read_task_runs(task_run_filter=unfinished, limit=1):
                    break
                await asyncio.sleep(RECORD_POLL_SECONDS)
