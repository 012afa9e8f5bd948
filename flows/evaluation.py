"""Evaluations as flows: of one checkpoint, of the current models on a schedule, and of whatever becomes healthy.

    python -m flows.evaluation checkpoint RECIPE KEY        one checkpoint, as an event trigger asks for it
    python -m flows.evaluation watch RECIPE                 every checkpoint that the Prefect server hears of
    python -m flows.evaluation regression RECIPE            the current model against the baseline, and alerts
    python -m flows.evaluation regression RECIPE --model MODEL --cron "0 3 * * *"

An evaluation is one artifact, whose key follows from the model and the suites: asked for again, late, or by twenty
events at once, it is made once.
"""

import argparse
import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import time
from typing import Any
from weakref import WeakValueDictionary

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)
from stages.cli import add_recipe_arguments, run_and_exit
from stages.recipe import STAGES, Recipe, load

# isort: split
from prefect import Flow, flow
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.clients import get_events_subscriber
from prefect.events.filters import EventFilter, EventNameFilter
from prefect.flows import EntrypointType
from prefect.settings import PREFECT_API_URL

from data.errors import InputError
from flows.alerts import tell
from flows.parameters import checked, require_json
from flows.run_names import named
from flows.showing.artifacts import show_comparison, show_evaluation
from flows.showing.events import HEALTHY
from flows.stage_task import Run, make
from flows.terminal import Listener, in_terminal, watching
from stages.alerts import Ledger, Look
from stages.current import current_model, evaluation_of, is_newest
from stages.looks import look_for_overdue, look_of_failure, look_of_success, looks_of_comparison, read_flips
from stages.resolve import Resolver
from stages.store import Artifact

LOOK_SECONDS = 10.0
JUDGED_STAGES = STAGES["evaluate"].inputs["model"].stages
running: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


@flow(
    name="evaluate-checkpoint",
    flow_run_name=named("{recipe} {checkpoint}"),
    validate_parameters=False,
    persist_result=False,
)
@checked
async def evaluate_checkpoint(recipe: Recipe, checkpoint: str, root: str = ".") -> str:
    """Evaluate a checkpoint that has become healthy, and compare it.

    Args:
        recipe: That of the training.
        checkpoint: Key of the checkpoint.
        root: Folder that holds artifacts/ and runs/.
    """
    run = Run(recipe, Path(root))
    model = _judged(run.store.lookup(checkpoint))
    return str((await evaluate_model(run, watching(), model)).path)


@flow(name="regression", flow_run_name=named("{recipe}"), validate_parameters=False, persist_result=False)
@checked
async def regression(
    recipe: Recipe,
    root: str = ".",
    models: list[str] = [],  # noqa: B006  (a literal default, which the form of the flow shows; nothing changes it)
    baseline: str = "",
    blocks: list[str] = [],  # noqa: B006
) -> list[str]:
    """Evaluate the current model, and every other that is named, against the baseline; raise alerts.

    Args:
        recipe: That of the current model, with the suites by which all are judged.
        root: Folder that holds artifacts/ and runs/.
        models: Other models: keys of artifacts, folders, .gguf files, or REPOSITORY@COMMIT of the Hugging Face hub.
        baseline: Name of the promoted baseline; empty: that of the recipe's [compare].
        blocks: Prefect blocks that are told besides those of the recipe's [alerts], as type/name.
    """
    told = tuple(dict.fromkeys((*recipe.alerts.blocks, *blocks)))
    recipe = _changed(recipe, "alerts", blocks=told)
    recipe = _changed(recipe, "compare", baseline=baseline or recipe.compare.baseline)
    run, listener = Run(recipe, Path(root)), watching()
    chosen, failures = [(recipe.name, current_model(_resolver(run)))], []
    for name in models:
        label = f"{recipe.name}/{name}"
        try:
            chosen.append((label, await _named(name, run, listener)))
        except Exception as error:  # of this model alone
            failures.append(error)
            await tell(run.store, [look_of_failure(label, name, str(error))], told)
    made, failed = await _evaluate_each(run, listener, chosen)
    Ledger(run.root, clock=time).looked(recipe.name)
    await tell(run.store, [_overdue(run)], told)
    if failures := [*failures, *failed]:
        raise failures[0]
    return [str(each.path) for each in made]


async def evaluate_model(
    run: Run, listener: Listener, model: Artifact, *, label: str = "", suffix: str = ""
) -> Artifact:
    """The evaluation of a model. It is compared, and whoever is to know is told, also of a failure, which is then
    raised. label: of the line of models whose alerts this is about; empty: the recipe's own."""
    label, blocks = label or run.recipe.name, run.recipe.alerts.blocks
    try:
        async with running.setdefault(model.key, asyncio.Lock()):
            evaluation, is_new = await _make("evaluate", run, listener, suffix, model=model.key)
            if is_new:
                await show_evaluation(run, evaluation)
            looks = await _compare(run, listener, model, evaluation, label, suffix)
    except Exception as error:
        await tell(run.store, [look_of_failure(label, model.path.name, str(error)), _overdue(run)], blocks)
        raise
    await tell(run.store, [look_of_success(label), *looks, _overdue(run)], blocks)
    return evaluation


async def evaluate_rest(run: Run, listener: Listener) -> list[str]:
    """Paths of the evaluations of all checkpoints of a recipe, those that are missing made. Raises what the first
    failure was, after all others were tried."""
    chosen = [(run.recipe.name, checkpoint) for checkpoint in _resolver(run).derived("checkpoint")]
    made, failures = await _evaluate_each(run, listener, chosen)
    if failures:
        raise failures[0]
    return [str(each.path) for each in made]


async def watch(recipe: Recipe, root: Path) -> None:
    """Evaluate every checkpoint of a recipe that becomes healthy, for as long as the Prefect server is there; first
    those that have become so before, and now and then those whose event was lost or came before they could be seen. A
    failure is told, does not stop the watch, and is tried again when the next event asks for it."""
    run, heard, tried = Run(recipe, root), asyncio.Queue[str](), set[str]()

    async def listen() -> None:
        chosen = EventFilter(event=EventNameFilter(name=[HEALTHY]))
        async with get_events_subscriber(filter=chosen, reconnect_on_clean_close=True) as events:
            async for event in events:
                heard.put_nowait(str(event.payload.get("key", "")))

    listening = asyncio.create_task(listen())
    try:
        while not listening.done():
            for checkpoint in run.store.all("checkpoint"):
                if checkpoint.key not in tried:
                    tried.add(checkpoint.key)
                    await _evaluate_if_ours(run, checkpoint)
            asked = asyncio.create_task(heard.get())
            await asyncio.wait({asked, listening}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                tried.discard(asked.result())
            asked.cancel()
        listening.result()
    finally:
        listening.cancel()


async def _evaluate_if_ours(run: Run, model: Artifact) -> None:
    """By a flow run of its own, unless the checkpoint is another recipe's or has been evaluated."""
    if model.manifest.label != run.recipe.name or evaluation_of(_resolver(run), model):
        return
    await evaluate_checkpoint(run.recipe, model.key, str(run.root), return_state=True)


async def _evaluate_each(
    run: Run, listener: Listener, chosen: Sequence[tuple[str, Artifact]]
) -> tuple[list[Artifact], list[Exception]]:
    """The evaluations of those (label, model) that could be evaluated, and why others could not."""
    made: list[Artifact] = []
    failures: list[Exception] = []
    for label, model in chosen:
        suffix = f" step {model.facts['step']}" if model.stage == "checkpoint" else f" {model.path.name}"
        try:
            made.append(await evaluate_model(run, listener, model, label=label, suffix=suffix))
        except Exception as error:
            failures.append(error)
    return made, failures


async def _compare(
    run: Run, listener: Listener, model: Artifact, evaluation: Artifact, label: str, suffix: str
) -> tuple[Look, ...]:
    """What a comparison has to say of how things stand now: nothing where there is nothing to compare with, and for a
    checkpoint that comes late."""
    if not Resolver(run.recipe, run.store, STAGES, {"candidate": evaluation}).jobs("compare"):
        if model.facts.get("last", True):
            text = f"{model.path.name} has nothing to be compared with: `python -m stages promote` makes a baseline"
            listener({"kind": "note", "stage": "compare", "text": text})
        return ()
    compared, is_new = await _make("compare", run, listener, suffix, candidate=evaluation.key)
    if is_new:
        await show_comparison(compared)
    return looks_of_comparison(label, compared, read_flips(compared)) if is_newest(run.store, model) else ()


async def _make(name: str, run: Run, listener: Listener, suffix: str, **inputs: str) -> tuple[Artifact, bool]:
    """The artifact, and whether it has been made just now."""
    hits: list[bool] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["kind"] == "artifact":
            hits.append(event["hit"])
        listener(event)

    (path,) = await make(name, run, on_event, suffix, **inputs)
    return Artifact(Path(path)), not all(hits)


async def _named(name: str, run: Run, listener: Listener) -> Artifact:
    """A model that a user names: an artifact, or what the stage `adopt` can take in."""
    try:
        found = run.store.lookup(name)
    except InputError:
        if "/" not in name and not Path(name).exists():
            raise
        source, _, revision = name.partition("@")
        recipe = _changed(run.recipe, "adopt", source=source, revision=revision)
        (path,) = await make("adopt", Run(recipe, run.root), listener)
        return Artifact(Path(path))
    return _judged(found)


def _judged(found: Artifact) -> Artifact:
    if found.stage not in JUDGED_STAGES:
        raise InputError(f"{found.path.name} is of the stage {found.stage}; a model is of {', '.join(JUDGED_STAGES)}")
    return found


def _changed(recipe: Recipe, table: str, **fields: Any) -> Recipe:
    """A recipe with some fields of a table set."""
    return recipe.model_copy(update={table: getattr(recipe, table).model_copy(update=fields)})


def _overdue(run: Run) -> Look:
    known = Ledger(run.root, clock=time).known()
    return look_for_overdue(run.recipe.name, run.store, known, run.recipe.alerts, time())


def _resolver(run: Run) -> Resolver:
    return Resolver(run.recipe, run.store, STAGES)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flows.evaluation", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    one = commands.add_parser("checkpoint", help="evaluate one checkpoint")
    watched = commands.add_parser("watch", help="evaluate every checkpoint that becomes healthy, until it is stopped")
    scheduled = commands.add_parser("regression", help="compare the current model with the baseline")
    for command in (one, watched, scheduled):
        add_recipe_arguments(command)
    one.add_argument("checkpoint", help="key, first digits of it, name or path")
    scheduled.add_argument("--model", action="append", default=[], dest="models", help="judge this model too")
    scheduled.add_argument("--baseline", default="", help="name of the promoted baseline")
    scheduled.add_argument(
        "--block", action="append", default=[], dest="blocks", metavar="TYPE/NAME", help="a Prefect block to tell"
    )
    scheduled.add_argument("--cron", default="", help="stay, and do it on this schedule; needs a Prefect server")
    arguments = parser.parse_args()
    run_and_exit(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    recipe, root = load(arguments.recipe, arguments.settings), str(arguments.root)
    if arguments.command == "checkpoint":
        print(in_terminal(lambda: evaluate_checkpoint(recipe, arguments.checkpoint, root)))
        return
    if arguments.command == "watch":
        _require_server("watch")
        in_terminal(lambda: watch(recipe, Path(root)))
        return
    more = {name: getattr(arguments, name) for name in ("models", "baseline", "blocks")}
    if arguments.cron:
        _require_schedule(arguments.cron)
        _require_server("--cron")
        parameters = {"recipe": recipe.tables(), "root": str(Path(root).resolve()), **more}
        require_json(parameters)
        served: Flow = import_module("flows.evaluation").regression  # not that of __main__, which no run can import
        kind = EntrypointType.MODULE_PATH
        served.serve(name=recipe.name, cron=arguments.cron, parameters=parameters, limit=1, entrypoint_type=kind)
        return
    for path in in_terminal(lambda: regression(recipe, root, **more)):
        print(path)


def _require_schedule(cron: str) -> None:
    try:
        CronSchedule(cron=cron)
    except ValueError:
        raise InputError(f'--cron: {cron!r} is no schedule; "0 3 * * *" is every day at three') from None


def _require_server(what: str) -> None:
    if not PREFECT_API_URL.value():
        raise InputError(f"{what} needs a server that stays: run `make ui`, and set PREFECT_API_URL to its address")


if __name__ == "__main__":
    main()
