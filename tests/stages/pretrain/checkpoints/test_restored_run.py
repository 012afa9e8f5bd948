"""A user relies on: a run that has lost its machine goes on on another one, with the result that it would have had."""

import shutil
from pathlib import Path
from typing import Any

from stages.journal import Event
from stages.pretrain.job import read_lines
from stages.store import Store
from tests.stages.pretrain import micro
from tests.stages.pretrain.forked import workers_forked


def test_a_lost_machine_changes_nothing_in_the_result(tmp_path: Path) -> None:
    far = tmp_path / "far"
    settings: dict[str, Any] = {"num_steps": 20, "checkpoint_every_steps": 10, "durable_url": f"file://{far}"}
    events: list[Event] = []
    with workers_forked():
        first = micro.pretrain(micro.config(**settings), Store(tmp_path / "lost"))
        # As if the machine had been lost before the second durable checkpoint.
        shutil.rmtree(next(far.glob("*/step-00000020")))
        next(far.glob("*/published/step-00000020.json")).unlink()
        again = micro.pretrain(micro.config(**settings), Store(tmp_path / "new"), listener=events.append)
    assert [event["step"] for event in events if event["kind"] == "checkpoint.restored"] == [10]
    assert [event["step"] for event in events if event["kind"] == "checkpoint.healthy"] == [10, 20]
    assert [event["step"] for event in events if event["kind"] == "checkpoint.uploaded"] == [20]
    assert again.digest == first.digest and again.facts == first.facts
    assert read_lines(again.path / "metrics.jsonl") == read_lines(first.path / "metrics.jsonl")
