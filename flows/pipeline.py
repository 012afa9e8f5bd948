"""The whole chain as a Prefect flow: `python -m flows.pipeline RECIPE [--set table.field=value]`.

Each stage is one task. While the training runs, every checkpoint that becomes healthy is evaluated beside it: one
loop in the main thread watches both child processes.
"""

import argparse
import asyncio
import inspect
import signal
import sys
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)
from stages.cli import add_recipe_arguments, run_and_exit
from stages.console import ConsoleListener, fail
from stages.recipe import STAGES, Recipe, load

# isort: split
from prefect import Task, flow
from prefect.artifacts import acreate_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    TaskRunFilter,
    TaskRunFilterStartTime,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.events.worker import EventsWorker
from prefect.exceptions import TerminationSignal
from prefect.logging.handlers import APILogHandler

from flows.process import StageFailed
from flows.server import server_for_this_run
from flows.stage_task import Run, stage_task
from stages.errors import FAILED
from stages.export.config import Form
from stages.store import Artifact

BEFORE_TRAINING = ("curate", "tokenizer", "pretokenize", "plan", "preflight")
AFTER_TRAINING = ("export", "report")
RECORD_POLLS = 25
RECORD_POLL_SECONDS = 0.2
TASKS: dict[str, Task] = {name: stage_task(name) for name in STAGES}

Listener = Callable[[dict[str, Any]], None]


def ignore(event: dict[str, Any]) -> None:
    """For a run that nobody watches in a terminal."""


terminal: ContextVar[Listener] = ContextVar("terminal", default=ignore)


@flow(name="pipeline", flow_run_name="{recipe.name}", validate_parameters=True, persist_result=False)
async def pipeline(recipe: Recipe, root: str = ".") -> dict[str, list[str]]:
    """From raw text to the report.

    Args:
        recipe: Everything that the run depends on.
        root: Folder that holds artifacts/ and runs/.
    """
    return await chain(Run(recipe, Path(root)), terminal.get())


async def chain(run: Run, listener: Listener) -> dict[str, list[str]]:
    """Paths of the artifacts of every stage, each stage made after what it needs."""
    made = {name: await _make(name, run, listener) for name in BEFORE_TRAINING}
    made["pretrain"], made["evaluate"] = await _train_and_evaluate(run, listener)
    for name in AFTER_TRAINING:
        made[name] = await _make(name, run, listener)
    await _show(run, made)
    return made


async def _make(name: str, run: Run, listener: Listener, suffix: str = "", **inputs: str) -> list[str]:
    return await TASKS[name](name, run, inputs, listener, suffix)


async def _train_and_evaluate(run: Run, listener: Listener) -> tuple[list[str], list[str]]:
    """A failing evaluation does not stop the training; it surfaces when both are done."""
    healthy: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def on_event(event: dict[str, Any]) -> None:
        if event["kind"] == "checkpoint.healthy":
            healthy.put_nowait(event)
        listener(event)

    async def train() -> list[str]:
        try:
            return await _make("pretrain", run, on_event)
        finally:
            healthy.put_nowait(None)

    async def evaluate() -> None:
        while (event := await healthy.get()) is not None:
            await _make("evaluate", run, listener, suffix=f" step {event['step']}", model=event["key"])

    training, evaluation = asyncio.create_task(train()), asyncio.create_task(evaluate())
    try:
        trained = await training
        await evaluation
    finally:
        training.cancel()
        evaluation.cancel()
        await asyncio.gather(training, evaluation, return_exceptions=True)
    return trained, await _make("evaluate", run, listener)


async def _show(run: Run, made: dict[str, list[str]]) -> None:
    """A summary of the run in the Prefect UI."""
    rows = ["| stage | artifact |", "|---|---|"]
    rows += [f"| {name} | `{path}` |" for name, paths in made.items() for path in paths]
    await acreate_markdown_artifact("\n".join(rows), key="pipeline", description=f"Artifacts of {run.recipe.name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description=__doc__)
    add_recipe_arguments(parser)
    arguments = parser.parse_args()

    def command() -> None:
        recipe = load(arguments.recipe, arguments.settings)
        with server_for_this_run() as api, ConsoleListener() as console:
            console.line("prefect", f"{api.removesuffix('/api')} shows this run")
            terminal.set(console)
            try:
                made = asyncio.run(_run_to_record(recipe, arguments.root))
            except StageFailed as error:  # told already, in the words of the stage
                sys.exit(error.exit_code if error.exit_code > 0 else FAILED)
            except TerminationSignal:
                fail("terminated; the same command continues")
                sys.exit(128 + signal.SIGTERM)
        _print_results(made)

    run_and_exit(command)


async def _run_to_record(recipe: Recipe, root: Path) -> dict[str, list[str]]:
    """Run the flow, and see that the server has its logs, its events and the end of each task before an embedded one
    stops."""
    unfinished = TaskRunFilter(
        state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])),
        start_time=TaskRunFilterStartTime(after_=datetime.now(UTC)),
    )
    async with get_client() as client:
        try:
            return await pipeline(recipe, str(root))
        finally:
            await APILogHandler.aflush()
            drained = EventsWorker.drain_all(timeout=RECORD_POLLS * RECORD_POLL_SECONDS, at_exit=False)
            if inspect.isawaitable(drained):
                await drained
            for _ in range(RECORD_POLLS):
                if not await client.read_task_runs(task_run_filter=unfinished, limit=1):
                    break
                await asyncio.sleep(RECORD_POLL_SECONDS)


def _print_results(made: dict[str, list[str]]) -> None:
    export = Artifact(Path(made["export"][0]))
    print(f"\nreport   {Path(made['report'][0]).resolve() / 'report.html'}")
    forms = export.facts["forms"]
    shipped = [form.path for form in Form if form.value in forms and forms[form.value]["accepted"]]
    print(f"model    {export.path.resolve() / shipped[0] if shipped else 'no form passed the quality gate'}")
    print(f"sample   {export.path.resolve() / 'sample.txt'}\n")
    print((export.path / "sample.txt").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
