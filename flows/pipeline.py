"""The whole chain as a Prefect flow: `python -m flows.pipeline RECIPE [--set table.field=value]`.

Each stage is one task. While the training runs, every checkpoint that becomes healthy is evaluated beside it: one
loop in the main thread watches both child processes.
"""

import argparse
import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)
from stages.cli import add_recipe_arguments, run_and_exit
from stages.recipe import Recipe, load

# isort: split
from prefect import flow

from flows.evaluation import evaluate_model, evaluate_rest
from flows.parameters import checked
from flows.run_names import named
from flows.showing.artifacts import show_pipeline
from flows.showing.events import HEALTHY
from flows.stage_task import Run, make
from flows.terminal import Listener, in_terminal, watching
from stages.export.config import Form
from stages.store import Artifact

BEFORE_TRAINING = ("curate", "tokenizer", "pretokenize", "plan", "preflight")
AFTER_TRAINING = ("export", "report")


@flow(name="pipeline", flow_run_name=named("{recipe}"), validate_parameters=False, persist_result=False)
@checked
async def pipeline(recipe: Recipe, root: str = ".") -> dict[str, list[str]]:
    """From raw text to the report.

    Args:
        recipe: Everything that the run depends on.
        root: Folder that holds artifacts/ and runs/.
    """
    return await chain(Run(recipe, Path(root), evaluates=True), watching())


async def chain(run: Run, listener: Listener) -> dict[str, list[str]]:
    """Paths of the artifacts of every stage, each stage made after what it needs."""
    made = {name: await make(name, run, listener) for name in BEFORE_TRAINING}
    made["pretrain"], made["evaluate"] = await _train_and_evaluate(run, listener)
    for name in AFTER_TRAINING:
        made[name] = await make(name, run, listener)
    await show_pipeline(run, made)
    return made


async def _train_and_evaluate(run: Run, listener: Listener) -> tuple[list[str], list[str]]:
    """A failing evaluation does not stop the training, nor the evaluations after it; it is tried again when the
    training is done, and surfaces then."""
    healthy: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def on_event(event: dict[str, Any]) -> None:
        if event["kind"] == HEALTHY:
            healthy.put_nowait(event)
        listener(event)

    async def train() -> list[str]:
        try:
            return await make("pretrain", run, on_event)
        finally:
            healthy.put_nowait(None)

    async def evaluate() -> None:
        while (event := await healthy.get()) is not None:
            with suppress(Exception):  # it has been told, and is tried again
                checkpoint = run.store.lookup(event["key"])
                await evaluate_model(run, listener, checkpoint, suffix=f" step {event['step']}")

    training, evaluation = asyncio.create_task(train()), asyncio.create_task(evaluate())
    try:
        trained = await training
        await evaluation
    finally:
        training.cancel()
        evaluation.cancel()
        await asyncio.gather(training, evaluation, return_exceptions=True)
    return trained, await evaluate_rest(run, listener)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description=__doc__)
    add_recipe_arguments(parser)
    arguments = parser.parse_args()

    def command() -> None:
        recipe = load(arguments.recipe, arguments.settings)
        _print_results(in_terminal(lambda: pipeline(recipe, str(arguments.root))))

    run_and_exit(command)


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
