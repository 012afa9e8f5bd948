"""A user relies on: the UI shows how a training goes and what came out, and showing it never stops a run."""

import asyncio
import json
import re
import struct
from base64 import b64decode
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import pytest

from flows.showing import artifacts, pages
from flows.showing.pages import history_page, kept_pipeline_page, loss_page
from flows.showing.sampling import MOST_LINES, WHOLE_BYTES, sampled
from flows.showing.stage_rows import stage_rows
from flows.showing.ui import slug
from flows.stage_task import Run
from stages.recipe import CHAIN, load
from stages.store import Artifact, Store
from tests.end_to_end.shell import TINY

PICTURE = re.compile(r"!\[[^]]+\]\(data:image/png;base64,([^)]+)\)")


def pictures(text: str) -> list[tuple[int, int]]:
    """Width and height of each picture of a page, as its PNG says."""
    found = []
    for data in PICTURE.findall(text):
        png = b64decode(data, validate=True)
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        found.append(struct.unpack(">II", png[16:24]))
    return found


@pytest.mark.parametrize(("name", "key"), [("loss-My Run_2.5", "loss-my-run-2-5"), ("Größe", "gr-e"), ("a--b-", "a-b")])
def test_a_key_holds_what_prefect_takes(name: str, key: str) -> None:
    assert slug(name) == key


def lines_of_steps(path: Path, steps: int, more: str = "") -> None:
    with open(path, "w") as file:
        for step in range(1, steps + 1):
            file.write(json.dumps({"step": step, "loss": 9 / step, "tokens": 10 * step, "more": more}) + "\n")


def test_a_short_record_is_read_whole_and_without_what_a_kill_tore(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines_of_steps(path, 50)
    with open(path, "a") as file:
        file.write('{"step": 51, "lo')
    assert [line["step"] for line in sampled(path, MOST_LINES)] == list(range(1, 51))
    assert list(sampled(tmp_path / "absent", MOST_LINES)) == []


def test_of_a_long_record_a_spread_of_lines_is_read_with_the_first_and_the_last(tmp_path: Path) -> None:
    path, steps = tmp_path / "metrics.jsonl", 30_000
    lines_of_steps(path, steps, more="x" * 150)
    assert path.stat().st_size > WHOLE_BYTES
    found = [line["step"] for line in sampled(path, 100)]
    assert found == sorted(set(found)) and found[0] == 1 and found[-1] == steps
    assert 90 <= len(found) <= 101
    assert max(after - before for before, after in zip(found, found[1:], strict=False)) < 2.5 * steps / 100


def test_the_loss_of_a_training_is_drawn_once_it_has_one(tmp_path: Path) -> None:
    assert loss_page(tmp_path, []) == ""
    lines_of_steps(tmp_path / "metrics.jsonl", 30)
    text = loss_page(tmp_path, [(20, 3.5)])
    assert len(pictures(text)) == 1
    assert "Step 30, 300 tokens: loss 0.3; held-out 3.5 at step 20." in text


@pytest.fixture(scope="module")
def made(tiny_root: Path) -> dict[str, list[Artifact]]:
    """What a whole chain has left, by stage."""
    store = Store(tiny_root)
    return {stage: list(store.all(stage)) for stage in CHAIN}


def test_the_page_of_a_pipeline_has_figures_charts_and_places(tiny_root: Path, made: dict[str, list[Artifact]]) -> None:
    text = pages.pipeline_page(Store(tiny_root), made)
    drawn = pictures(text)
    assert len(drawn) >= 2 and all(width > 400 and height > 100 for width, height in drawn)
    assert len(text.encode()) < 1_000_000
    for place in re.findall(r"\| `(/[^`]+)` \|", text):
        assert Path(place).exists()
    for word in ("final loss", "bits per byte, code", "gguf-q4_0", "report.html", *CHAIN[:3]):
        assert word in text


def test_a_page_that_was_drawn_is_kept(
    tmp_path: Path, made: dict[str, list[Artifact]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(pages, "pipeline_page", lambda store, made: calls.append(made) or "a page")
    store = Store(tmp_path)
    store.artifacts_path.mkdir()
    assert [kept_pipeline_page(store, made) for _ in range(2)] == ["a page", "a page"] and len(calls) == 1
    kept_pipeline_page(store, {**made, "export": made["report"]})
    assert len(calls) == 2
    assert list(store.all()) == [], "it is no artifact"


def test_the_history_of_evaluations_is_that_of_one_training(tiny_root: Path, made: dict[str, list[Artifact]]) -> None:
    evaluations = made["evaluate"]
    text = history_page(Store(tiny_root), evaluations[0])
    assert len(pictures(text)) >= 1
    steps = [int(row.split("|")[1].replace(",", "")) for row in text.splitlines() if re.match(r"\| [\d,]+ \|", row)]
    expected = sorted((each.facts["model"]["step"] for each in evaluations), reverse=True)
    assert steps == expected and len(steps) >= 2, "the newest first"


def test_rows_of_a_stage_are_few_short_and_rounded(made: dict[str, list[Artifact]]) -> None:
    for stage, artifacts_of_stage in made.items():
        for artifact in artifacts_of_stage:
            rows = stage_rows(artifact)
            assert 4 <= len(rows) <= 40, stage
            assert all(set(row) == {"about", "what", "value"} for row in rows)
            assert not any(
                re.search(r"\d\.0*[1-9]\d{3}", row["value"]) for row in rows if row["about"] == "measured"
            ), rows


def test_what_cannot_be_shown_stops_nothing(
    made: dict[str, list[Artifact]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is away, and a picture that cannot be drawn."""

    async def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("the server is away")

    monkeypatch.setattr(artifacts, "show", away)
    monkeypatch.setattr(artifacts, "show_table", away)
    monkeypatch.setattr(pages, "kept_pipeline_page", lambda *_: 1 / 0)
    run = Run(load(TINY), Path())
    evaluation = made["evaluate"][0]

    async def main() -> None:
        await artifacts.show_stage(run, made["plan"])
        await artifacts.show_evaluation(run, evaluation)
        await artifacts.show_pipeline(run, {})

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records if "not shown" in record.getMessage()]
    reasons = [text.rpartition(": ")[2] for text in said]
    assert reasons == ["the server is away", "the server is away", "division by zero"]
