"""Any one stage as a flow: what it needs first, inputs by name, several artifacts, and what it leaves in the UI."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any, get_args

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import httpx
import pytest

from data.errors import InputError
from flows.single_stage import StageName, single_stage
from stages.recipe import STAGES, load
from stages.store import Store
from tests.end_to_end.shell import TINY, run_here

LIMIT_SECONDS = 300
TABLES = load(TINY).tables()


def run(stage: str, root: Path, **more: Any) -> Any:
    """Its last state, as it is reported: parameters are those of a form."""
    given = {"stage": stage, "root": str(root), **{"recipe": TABLES, **more}}
    return asyncio.run(asyncio.wait_for(single_stage(**given, return_state=True), LIMIT_SECONDS))


def paths(stage: str, root: Path, **more: Any) -> list[str]:
    state = run(stage, root, **more)
    assert state.is_completed(), state.message
    found: list[str] = asyncio.run(state.aresult())
    return found


def newest_run(client: httpx.Client) -> dict[str, Any]:
    (found,) = client.post("/flow_runs/filter", json={"sort": "START_TIME_DESC", "limit": 1}).json()
    assert isinstance(found, dict)
    return found


def tasks_of(client: httpx.Client, run_id: str, count: int) -> list[str]:
    """The tasks of a flow run. A server records them from events, some time after they ended."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        tasks = client.post("/task_runs/filter", json={"flow_runs": {"id": {"any_": [run_id]}}}).json()
        if len(tasks) >= count or time.monotonic() > deadline:
            return sorted(task["name"] for task in tasks)
        time.sleep(0.1)


def newest_artifact(client: httpx.Client, key: str) -> Any:
    return client.get(f"/artifacts/{key}/latest").json()


def test_the_form_offers_every_stage() -> None:
    assert get_args(StageName) == tuple(STAGES)


def test_what_a_stage_needs_is_made_first_and_once(client: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for number in range(40):
        text = f"This is document {number}. It is about the number {number * 7} and about nothing else.\n" * 40
        (tmp_path / "text" / f"{number}.txt").write_text(text)
    source = {"kind": "text", "path": str(tmp_path / "text" / "*.txt"), "domain": "prose", "quality": ["none"]}
    curate = {"sources": [source], "near_threshold": 1, "overlap_ngram_words": 50}
    recipe = {**TABLES, "name": "small", "curate": curate, "tokenizer": {"size": 320}}
    alone = run("pretokenize", tmp_path, recipe=recipe)
    assert alone.is_failed() and "--upstream" in alone.message
    (path,) = paths("tokenizer", tmp_path, recipe=recipe, upstream=True)
    store = Store(tmp_path)
    assert [made.path for made in store.all("tokenizer")] == [Path(path)] and len(list(store.all("curate"))) == 1
    ran = newest_run(client)
    assert ran["name"] == "small tokenizer"
    assert tasks_of(client, ran["id"], count=2) == ["curate", "tokenizer"]
    assert newest_artifact(client, "tokenizer-small")["type"] == "table"
    assert paths("tokenizer", tmp_path, recipe=recipe, upstream=True) == [path]


def test_a_stage_may_have_several_artifacts_and_take_one_by_name(client: httpx.Client, tiny_root: Path) -> None:
    checkpoints = list(Store(tiny_root).all("checkpoint"))
    every = paths("evaluate", tiny_root)
    assert len(every) == len(checkpoints) >= 2
    (one,) = paths("evaluate", tiny_root, inputs={"model": checkpoints[0].key})
    assert one in every
    shown = newest_artifact(client, "evaluation-tiny")
    assert checkpoints[0].key in shown["description"] and shown["flow_run_id"] == newest_run(client)["id"]
    (report,) = paths("report", tiny_root)
    page = newest_artifact(client, "pipeline-tiny")
    assert str(Path(report).resolve()) in page["data"] and page["flow_run_id"] == newest_run(client)["id"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"inputs": {"modle": "0123"}}, "inputs.modle: evaluate takes model"),
        ({"inputs": {"model": 5}}, "inputs.model: Input should be a valid string, got 5"),
        ({"stage": "evaluat"}, "stage: Input should be 'curate', 'tokenizer'"),
        ({"upstream": "perhaps"}, "upstream: Input should be a valid boolean"),
        ({"recipe": {"name": "a", "evaluate": {"thread": 1}}}, "evaluate.thread: unknown key; did you mean threads?"),
    ],
    ids=lambda each: json.dumps(each)[:30],
)
def test_what_a_user_wrote_is_refused_in_words(
    client: httpx.Client, tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    state = run(**{"stage": "evaluate", "root": tmp_path, **more})
    assert state.is_failed() and words in state.message
    with pytest.raises(InputError):
        asyncio.run(state.aresult())
    assert newest_run(client)["run_count"] == 1 and list(tmp_path.iterdir()) == []


def test_it_can_be_started_from_a_terminal(client: httpx.Client, tiny_root: Path) -> None:
    result = run_here("flows.single_stage", "plan", TINY, "--root", tiny_root, "--upstream")
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.split()[-1]) == next(Store(tiny_root).all("plan")).path
    assert newest_run(client)["tags"] == ["longhaul"]
    for arguments, words in (
        (["evaluate", TINY, "--input", "modle=x"], "inputs.modle: evaluate takes model"),
        (["evaluate", TINY, "--input", "modle"], "NAME=ARTIFACT"),
        (["plan", TINY, "--set", "plan.step_second=1"], "did you mean step_seconds?"),
    ):
        result = run_here("flows.single_stage", *arguments)
        assert result.returncode == 2 and words in result.stderr
