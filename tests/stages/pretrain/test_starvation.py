"""A user relies on: a training that waits for its data says so."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from data.loader import Batch, BatchLoader
from stages.journal import Journal
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.loop import train
from stages.pretrain.records import Records
from stages.pretrain.sequences import open_train
from stages.pretrain.supervisor import MOST_WAITING, measurements, warn_of_waiting
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build

DELAY_SECONDS = 0.5


class Slow(BatchLoader):
    """Every batch but the first takes its time."""

    def batch(self, step: int) -> Batch:
        time.sleep(DELAY_SECONDS if step else 0)
        return super().batch(step)


def test_the_steps_of_a_slow_loader_are_known_to_have_waited(build: Build, tokens: Path, tmp_path: Path) -> None:
    config = micro.config(num_steps=4, checkpoint_every_steps=4, reader_threads=1, prefetch_batches=1)
    training, state = build(config)
    sequences = open_train(config, tokens)
    training = dataclasses.replace(training, train=Slow(sequences.order, sequences.domains))
    run = RunDirectory(tmp_path / "run")
    with Records(run, writes=True) as records:
        train(training, state, records)
    timing = read_lines(run.timing)
    assert timing[0]["data_wait_seconds"] == 0, "starting to read is no part of the first step"
    assert all(0 < line["data_wait_seconds"] <= line["seconds"] for line in timing[1:])
    assert measurements(config, timing, run, {})["data_wait_ratio"] > MOST_WAITING


@pytest.mark.parametrize(("ratio", "told"), [(MOST_WAITING, 0), (0.051, 1)])
def test_a_starved_run_warns(tmp_path: Path, ratio: float, told: int) -> None:
    events: list[dict[str, Any]] = []
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain", listeners=(events.append,))
    warn_of_waiting(journal, ratio)
    journal.close()
    assert [event["kind"] for event in events] == ["warning"] * told
    assert all("5.1% of the time" in event["text"] and "pretrain.reader_threads" in event["text"] for event in events)
