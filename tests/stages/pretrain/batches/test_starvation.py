"""A user relies on: a training that waits for its data says so; where its data comes from changes nothing else."""

import dataclasses
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import fsspec
import pytest

from data.order.loader import Batch, BatchLoader
from stages.journal import Journal
from stages.pretrain.batches.sequences import open_train
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.loop import train
from stages.pretrain.monitor.records import Records
from stages.pretrain.supervision.collect import MOST_WAITING, measurements, warn_of_waiting
from stages.store import Store
from tests.services.proxy import FaultProxy, Faults
from tests.services.s3 import CREDENTIALS, options, s3_server
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build

DELAY_SECONDS = 0.05


class Slow(BatchLoader):
    """Every batch but the first is read once the step before it has ended, and then takes its time."""

    ended = defaultdict[int, threading.Event](threading.Event)

    def batch(self, step: int) -> Batch:
        if step:
            assert self.ended[step].wait(60)
            time.sleep(DELAY_SECONDS)
        return super().batch(step)


def say_ended(point: str, step: int, rank: int, value: Any) -> Any:
    if point == "end":
        Slow.ended[step].set()
    return value


def test_the_steps_of_a_slow_loader_are_known_to_have_waited(build: Build, tokens: Path, tmp_path: Path) -> None:
    config = micro.config(num_steps=4, checkpoint_every_steps=4, reader_threads=1, prefetch_batches=1)
    training, state = build(config)
    sequences = open_train(config, tokens)
    training = dataclasses.replace(training, train=Slow(sequences.order, sequences.domains), hook=say_ended)
    run = RunDirectory(tmp_path / "run")
    with Records(run, writes=True) as records:
        train(training, state, records)
    timing = read_lines(run.timing)
    assert timing[0]["data_wait_seconds"] == 0, "starting to read is no part of the first step"
    assert all(0 < line["data_wait_seconds"] <= line["seconds"] for line in timing[1:])
    assert measurements(read_lines(run.metrics), timing, run, {})["data_wait_ratio"] > MOST_WAITING


def test_speed_is_that_of_the_tokens_that_were_predicted(tmp_path: Path) -> None:
    """Of the median step; padding is none of them."""
    metrics = [{"step": step, "tokens": tokens} for step, tokens in ((1, 90), (2, 150), (3, 246))]
    timing = [{"step": step, "seconds": step / 2, "data_wait_seconds": 0.0} for step in (1, 2, 3)]
    assert measurements(metrics, timing, RunDirectory(tmp_path), {})["tokens_per_second"] == 96 / 1.5


@pytest.mark.parametrize(("ratio", "told"), [(MOST_WAITING, 0), (0.051, 1)])
def test_a_starved_run_warns(tmp_path: Path, ratio: float, told: int) -> None:
    events: list[dict[str, Any]] = []
    journal = Journal(tmp_path / "events.jsonl", stage="pretrain", listeners=(events.append,))
    warn_of_waiting(journal, ratio)
    journal.close()
    assert [event["kind"] for event in events] == ["warning"] * told
    assert all("5.1% of the time" in event["text"] and "pretrain.reader_threads" in event["text"] for event in events)


def test_shards_of_an_object_store_behind_a_bad_network_give_the_losses_of_local_ones(
    build: Build, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker needs to reach the store comes from the environment."""
    config = micro.config(num_steps=8, checkpoint_every_steps=8)
    training, state = build(config)
    local = RunDirectory(tmp_path / "run")
    with Records(local, writes=True) as records:
        train(training, state, records)
    with s3_server() as port, FaultProxy(port) as proxy:
        files = fsspec.filesystem("s3", **options(port))
        files.mkdir("bucket")
        for path in (tokens / "train").glob("*-*.arrow"):
            files.pipe_file(f"bucket/train/{path.name}", path.read_bytes())
        proxy.faults, proxy.script = Faults(latency_seconds=0.02), ["503", "", "reset", "cut"]
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}.items():
            monkeypatch.setenv(name, value)
        cache = tmp_path / "cache"
        far = config.model_copy(update={"shards_url": "s3://bucket/train", "cache_directory": str(cache)})
        artifact = micro.pretrain(far, Store(tmp_path / "store"))
        fetched = len(list((cache / "blocks").iterdir()))
        assert proxy.num_faults == 3 and proxy.num_requests == fetched + 3 > 10
    assert read_lines(artifact.path / "metrics.jsonl") == read_lines(local.metrics)
    assert artifact.manifest.measurements["incidents"] == 0
