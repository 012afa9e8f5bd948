"""The one generic task: make the artifacts of a stage, from the store if they are there, else by a child process.

The manifest is the cache, so Prefect's own is off. A failure is tried again where that can help: not for what the
user wrote.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from data.errors import InputError
from flows.notify import Notifier
from flows.process import GRACE_SECONDS, StageFailed, run_stage_process
from stages.errors import BAD_INPUT
from stages.files import write_atomic
from stages.fingerprint import digest
from stages.recipe import STAGES, Recipe
from stages.resolve import MissingInput, Resolver
from stages.store import Artifact, Store

RETRY_DELAYS_SECONDS = [1.0, 10.0, 60.0]


@dataclass(frozen=True)
class Run:
    """What the tasks of one flow run share."""

    recipe: Recipe
    root: Path

    @property
    def store(self) -> Store:
        return Store(self.root)

    def recipe_path(self) -> Path:
        """The resolved recipe as a file, for the child processes."""
        tables = self.recipe.model_dump(mode="json")
        path = self.store.artifacts_path / ".recipes" / f"{self.recipe.name}-{digest(tables)[:12]}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, json.dumps(tables, indent=1))
        return path


async def worth_retrying(task: Task, task_run: TaskRun, state: State) -> bool:
    """Whether the same command may succeed another time."""
    error = await state.aresult(raise_on_failure=False)
    return not (isinstance(error, InputError) or (isinstance(error, StageFailed) and error.exit_code == BAD_INPUT))


def stage_task(name: str) -> Task:
    """The task of one stage."""
    decorator = task(
        name=name,
        task_run_name=name + "{suffix}",
        retries=len(RETRY_DELAYS_SECONDS),
        retry_delay_seconds=RETRY_DELAYS_SECONDS,
        retry_condition_fn=worth_retrying,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    return decorator(_make)


async def make(
    name: str, run: Run, listener: Callable[[dict[str, Any]], None], suffix: str = "", **inputs: str
) -> list[str]:
    """Paths of the artifacts of a stage. `inputs` names artifacts by key where the recipe leaves a choice; `suffix`
    is added to the name of the task run."""
    return await TASKS[name](name, run, inputs, listener, suffix)


async def _make(
    stage: str,
    run: Run,
    inputs: dict[str, str],
    listener: Callable[[dict[str, Any]], None],
    suffix: str = "",
) -> list[str]:
    """Paths of the artifacts of `stage`. `inputs` names artifacts by key where the recipe leaves a choice."""
    hits = _hits(stage, run, inputs)
    if hits:
        for artifact in hits:
            listener({"kind": "artifact", "stage": stage, "key": artifact.key, "path": str(artifact.path), "hit": True})
        return [str(artifact.path) for artifact in hits]
    notifier = Notifier()
    paths: list[str] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["kind"] == "artifact":
            paths.append(event["path"])
        notifier(event)
        listener(event)

    arguments = [str(run.recipe_path()), "--root", str(run.root), "--wait"]
    for name, key in inputs.items():
        arguments += ["--input", f"{name}={key}"]
    try:
        await run_stage_process(stage, arguments, on_event, grace_seconds=grace_seconds(run.recipe, stage))
    except StageFailed as error:
        on_event({"kind": "warning", "stage": stage, "text": error.summary})
        raise
    return paths


TASKS: dict[str, Task] = {name: stage_task(name) for name in STAGES}


def grace_seconds(recipe: Recipe, stage: str) -> float:
    """How long a stage that is cancelled may take to leave: a training takes a last checkpoint first."""
    last_checkpoint: float = getattr(getattr(recipe, stage), "grace_seconds", 0.0)
    return last_checkpoint + GRACE_SECONDS


def _hits(stage: str, run: Run, inputs: dict[str, str]) -> list[Artifact]:
    """The artifacts, if all that the stage would make are in the store; none otherwise."""
    store = run.store
    resolver = Resolver(run.recipe, store, STAGES, {name: store.lookup(key) for name, key in inputs.items()})
    try:
        return resolver.found(stage)
    except MissingInput:
        return []
