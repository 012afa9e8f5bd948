"""The one generic task: make the artifacts of a stage, from the store if they are there, else by a child process.

The manifest is the cache, so Prefect's own is off. A failure is tried again where that can help: not for what the
user wrote, nor for want of memory or of time, which the same command would meet again.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from data.errors import InputError
from flows.process import GRACE_SECONDS, NEVER, Limits, StageFailed, StageOverdue, run_stage_process
from flows.showing.artifacts import show_stage
from flows.showing.notify import Notifier
from stages.errors import BAD_INPUT
from stages.files import write_atomic
from stages.fingerprint import digest
from stages.out_of_memory import advice
from stages.recipe import STAGES, Recipe
from stages.resolve import Externals, MissingInput, Resolver
from stages.run_settings import RunConfig
from stages.store import Artifact, Store

KNOWN_SECONDS = 60.0
LEAVING_SECONDS = 2.0  # of a training, when its last checkpoint is taken


class Known:
    """What stages depend on outside the store, as it has been found out: for a minute, in which many stages may turn
    out to be hits, and not for the weeks of a training."""

    def __init__(self) -> None:
        self._found: Externals = {}
        self._since = time.monotonic()

    def externals(self) -> Externals:
        if time.monotonic() - self._since > KNOWN_SECONDS:
            self._found, self._since = {}, time.monotonic()
        return self._found


@dataclass(frozen=True)
class Run:
    """What the tasks of one flow run share. evaluates: its own checkpoints, so that nobody else needs to."""

    recipe: Recipe
    root: Path
    evaluates: bool = False
    known: Known = field(default_factory=Known, compare=False, repr=False)

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
    if isinstance(error, StageFailed):
        return error.exit_code != BAD_INPUT and not isinstance(error, StageOverdue)
    return not isinstance(error, InputError)


@cache
def stage_task(name: str, settings: RunConfig) -> Task:
    """The task of one stage."""
    decorator = task(
        name=name,
        task_run_name=name + "{suffix}",
        retries=settings.retries,
        retry_delay_seconds=settings.retry_delays() or None,
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
    return await stage_task(name, run.recipe.run)(name, run, inputs, listener, suffix)


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
    paths: list[str] = []
    async with Notifier(run, stage) as notifier:

        def on_event(event: dict[str, Any]) -> None:
            if event["kind"] == "artifact":
                paths.append(event["path"])
            notifier(event)
            listener(event)

        arguments = [str(run.recipe_path()), "--root", str(run.root), "--wait"]
        for name, key in inputs.items():
            arguments += ["--input", f"{name}={key}"]
        try:
            await run_stage_process(stage, arguments, on_event, limits=limits(run.recipe, stage))
        except StageFailed as error:
            on_event({"kind": "error", "stage": stage, "text": error.summary})
            raise
    await show_stage(run, [Artifact(Path(path)) for path in paths])
    return paths


def limits(recipe: Recipe, stage: str) -> Limits:
    """How a stage is watched. A training that is cancelled has the time for its last checkpoint: by default less than
    the 30 s after which Prefect kills a flow, so that the flow is there until all is gone."""
    last_checkpoint: float = getattr(recipe.config_for(stage), "grace_seconds", 0.0)
    return Limits(
        stall=60 * recipe.run.stall_minutes,
        deadline=3600 * recipe.run.deadline_hours or NEVER,
        grace=max(GRACE_SECONDS, last_checkpoint + LEAVING_SECONDS),
        lower=advice(stage, recipe.config_for(stage)),
    )


def _hits(stage: str, run: Run, inputs: dict[str, str]) -> list[Artifact]:
    """The artifacts, if all that the stage would make are in the store; none otherwise."""
    store = run.store
    chosen = {name: store.lookup(key) for name, key in inputs.items()}
    resolver = Resolver(run.recipe, store, STAGES, chosen, run.known.externals())
    try:
        return resolver.found(stage)
    except MissingInput:
        return []
