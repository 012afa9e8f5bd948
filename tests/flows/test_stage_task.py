"""A user relies on: what may go away by itself is tried again, what would come back is not, a failure says in the UI
what the stage said last, and a cancelled training has the time for its last checkpoint."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import httpx
import pytest
from prefect import flow

from data.errors import InputError
from flows import stage_task
from flows.process import GRACE_SECONDS, NEVER, Limits, OutOfMemory, StageFailed, StageOverdue, StageStalled
from flows.stage_task import LEAVING_SECONDS, Run, limits, make
from flows.terminal import ignore
from stages.base import Facts, execute
from stages.errors import BAD_INPUT, FAILED, TRY_AGAIN
from stages.recipe import STAGES, Recipe, load
from stages.resolve import Resolver
from stages.store import Store
from tests.end_to_end.shell import TINY

LIMIT_SECONDS = 120


def test_how_long_a_stage_may_be_silent_and_take_is_as_the_recipe_says() -> None:
    found = limits(load(TINY, ["run.stall_minutes=2", "run.deadline_hours=3"]), "curate")
    assert (found.stall, found.deadline, found.grace) == (120.0, 3 * 3600.0, GRACE_SECONDS)
    assert "lower curate.workers" in found.lower
    assert limits(load(TINY), "curate").deadline == NEVER


def test_a_training_that_is_cancelled_has_its_own_grace_time_first() -> None:
    """But no more than Prefect gives the flow, unless the user wants so."""
    assert GRACE_SECONDS < limits(load(TINY), "pretrain").grace < 30
    assert limits(load(TINY, ["pretrain.grace_seconds=90"]), "pretrain").grace == 90 + LEAVING_SECONDS


@pytest.mark.parametrize(
    ("settings", "delays"),
    [
        ([], [1.0, 10.0, 60.0]),
        (["run.retries=5", "run.retry_delay_seconds=30"], [30.0, 60.0, 60.0, 60.0, 60.0]),
        (["run.retries=2", "run.retry_delay_seconds=300"], [300.0, 300.0]),
        (["run.retries=0"], []),
    ],
)
def test_delays_grow(settings: list[str], delays: list[float]) -> None:
    assert load(TINY, settings).run.retry_delays() == delays


def test_what_lies_outside_the_store_is_looked_at_once_for_many_hits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be thousands of files; and again a minute later, when a training may have come between."""
    looks = []

    def externals(config: Any, store: Store) -> dict[str, Any]:
        looks.append(config)
        return {}

    monkeypatch.setitem(STAGES, "curate", replace(STAGES["curate"], externals=externals))
    run = Run(load(TINY), tmp_path)
    for stage in ("curate", "tokenizer", "pretokenize", "curate"):
        stage_task._hits(stage, run, {})
    assert len(looks) == 1
    run.known._since -= stage_task.KNOWN_SECONDS + 1
    stage_task._hits("tokenizer", run, {})
    assert len(looks) == 2


def recipe(folder: Path) -> Recipe:
    (folder / "source.txt").write_text("a text\n")
    return load(
        TINY,
        [
            "run.retry_delay_seconds=0",
            f'curate.sources=[{{kind="text", path="{folder / "source.txt"}", domain="prose"}}]',
        ],
    )


def curated(run: Run) -> str:
    """The stage itself, in this process and without a text to work on."""
    (job,) = Resolver(run.recipe, run.store, STAGES).jobs("curate")
    facts = Facts(facts={"documents": 1234, "lost_share": 0.123456})
    artifact = execute(replace(job, stage=replace(job.stage, run=lambda *_: facts)), run.store)
    return str(artifact.path)


class Stage:
    """In the place of the child process: each attempt fails as the next of these, then one comes to its end."""

    def __init__(self, run: Run, *failures: BaseException) -> None:
        self.run, self.failures, self.attempts = run, list(failures), 0

    async def __call__(self, stage: str, arguments: Any, on_event: Any, *, limits: Limits) -> None:
        self.attempts += 1
        on_event({"stage": stage, "kind": "progress", "name": "read", "done": 1, "total": 2, "unit": "parts"})
        if self.failures:
            raise self.failures.pop(0)
        on_event({"stage": stage, "kind": "artifact", "key": "", "path": curated(self.run), "hit": False})


def attempts(folder: Path, monkeypatch: pytest.MonkeyPatch, *failures: BaseException) -> tuple[int, Any]:
    """How often a stage was tried that fails in these ways, and the last state of its flow."""
    run = Run(recipe(folder), folder)
    stage = Stage(run, *failures)
    monkeypatch.setattr(stage_task, "run_stage_process", stage)

    @flow(name="one stage")
    async def one() -> list[str]:
        return await make("curate", run, ignore)

    state = asyncio.run(asyncio.wait_for(one(return_state=True), LIMIT_SECONDS))
    return stage.attempts, state


@pytest.mark.parametrize(
    "failure",
    [
        StageFailed("curate", TRY_AGAIN, "error: a lease is held"),
        StageFailed("curate", -9, ""),
        StageFailed("curate", FAILED, "Traceback\nOSError: the mount is away"),
        StageStalled("curate", TRY_AGAIN, "error: the last line was none"),
    ],
)
def test_what_may_go_away_is_tried_again(
    client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: StageFailed
) -> None:
    tried, state = attempts(tmp_path, monkeypatch, failure, failure)
    assert tried == 3 and state.is_completed()


@pytest.mark.parametrize(
    "failure",
    [
        StageFailed("curate", BAD_INPUT, "error: curate.sources names no text"),
        OutOfMemory("curate", BAD_INPUT, "error: lower curate.workers"),
        StageOverdue("curate", FAILED, "error: raise run.deadline_hours"),
        InputError("--input corpus: there is none"),
    ],
)
def test_what_would_come_back_is_not(
    client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    tried, state = attempts(tmp_path, monkeypatch, failure)
    assert tried == 1 and state.is_failed()
    last = str(failure).rpartition(": ")[2]
    assert last in state.message


def test_tries_have_an_end(client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = StageFailed("curate", -11, "Fatal Python error: Segmentation fault")
    tried, state = attempts(tmp_path, monkeypatch, *[failure] * 10)
    assert tried == 1 + load(TINY).run.retries and "killed by SIGSEGV" in state.message


def test_what_was_made_stands_in_the_ui(client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, _ = attempts(tmp_path, monkeypatch)
    table = client.get("/artifacts/curate-tiny/latest").json()
    rows = {row["what"]: row["value"] for row in json.loads(table["data"])}
    assert rows["documents"] == "1,234" and rows["lost share"] == "0.123", "rounded"
    assert {"artifact", "size", "time", "CPU"} <= rows.keys()
    progress = client.get("/artifacts/progress-curate-tiny/latest").json()
    assert (progress["data"], progress["description"]) == (50.0, "read: 1 of 2 parts")
    assert tried == 1 and table["task_run_id"] == progress["task_run_id"] is not None
    again, state = attempts(tmp_path, monkeypatch)
    assert again == 0 and state.is_completed(), "a hit starts no process"
    assert client.get("/artifacts/curate-tiny/latest").json()["id"] == table["id"]
    assert next(Store(tmp_path).all("curate")).path.name in rows["artifact"]
