"""Whole runs in replica groups, whose processes are lost: the others go on, and the lost ones come back."""

from pathlib import Path
from typing import Any

import pytest

from stages.pretrain.config import PretrainConfig
from stages.store import Artifact, Store
from tests.stages.pretrain import micro
from tests.stages.pretrain.forked import workers_forked
from tests.stages.pretrain.parallel import losing
from tests.stages.pretrain.runs import STEPS, config, incidents, metrics

Fault = tuple[str, int, int, str]
ROWS = 7


def redundant(num_processes: int, **settings: Any) -> PretrainConfig:
    """Faults make ranks wait for what takes as long as a start: they are not hung."""
    waits = {"collective_timeout_least_seconds": 300}
    return config(num_processes, batch_sequences=ROWS, redundant=True, **waits, **settings)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The same training on one process."""
    with workers_forked():
        return micro.pretrain(config(1, batch_sequences=ROWS), Store(tmp_path_factory.mktemp("alone")))


def train(
    config: PretrainConfig, tmp_path: Path, alone: Artifact, monkeypatch: pytest.MonkeyPatch, *faults: Fault
) -> tuple[list[tuple[str, int]], list[dict[str, Any]]]:
    """Carry the training through while these faults happen. Checks that its losses are those of one process, that every
    sample of a step was trained on once, and that nothing was taken back: the run was one attempt. Returns what was
    told of groups, and what ranks have noted down."""
    store, notes = Store(tmp_path / "store"), tmp_path / "notes"
    groups = config.num_processes // (config.shard_processes or 1)
    losing.plan(monkeypatch, notes, *faults, root=tmp_path / "store", num_groups=groups)
    events: list[dict[str, Any]] = []
    artifact = micro.pretrain(config, store, hook=losing.HOOK, listener=events.append)
    assert artifact.key == alone.key
    assert incidents(store, artifact) == []
    for one, other in zip(metrics(alone), metrics(artifact), strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert all(one[name] == other[name] for name in ("step", "tokens", "learning_rate"))
    assert [held["step"] for held in artifact.facts["checkpoints"]] == [10, STEPS]
    assert artifact.facts["heldout_loss"] == pytest.approx(alone.facts["heldout_loss"], rel=1e-4)
    noted = losing.noted(notes)
    for step in range(1, STEPS + 1):
        rows = [tuple(row) for note in noted if note["step"] == step for row in note["samples"]]
        assert len(rows) == len(set(rows)) == ROWS, f"step {step}: {rows}"
    return [(event["kind"], event["group"]) for event in events if event["kind"].startswith("group.")], noted


def num_pids(noted: list[dict[str, Any]], num_processes: int) -> list[int]:
    """How many processes each place has had."""
    return [len({note["pid"] for note in noted if note["place"] == place}) for place in range(num_processes)]


@pytest.mark.slow
def test_processes_live_on_without_each_other_and_those_that_are_lost_heal(
    tmp_path: Path, alone: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher of one is killed, and with it the process, in the middle of a step; then the process that writes
    records and checkpoints, while it writes a durable one."""
    told, noted = train(
        redundant(2, sharding="none"),
        tmp_path,
        alone,
        monkeypatch,
        ("loss", 4, 1, "launcher"),
        ("begin", 8, 0, "whole"),
        ("written", 10, 0, "kill"),
        ("begin", 16, 1, "whole"),
    )
    assert told == [("group.lost", 1), ("group.joined", 1), ("group.lost", 0), ("group.joined", 0)]
    assert num_pids(noted, 2) == [2, 2]


@pytest.mark.slow
def test_groups_that_shard_live_on_without_each_other_and_those_that_are_lost_heal(
    tmp_path: Path, alone: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process of a group is killed, with which the group is lost; then one of the group that writes."""
    with workers_forked():
        told, noted = train(
            redundant(4, sharding="hybrid", shard_processes=2),
            tmp_path,
            alone,
            monkeypatch,
            ("loss", 4, 3, "kill"),
            *(("begin", 8, place, "whole") for place in (0, 1)),
            ("loss", 12, 1, "kill"),
            *(("begin", 16, place, "whole") for place in (2, 3)),
        )
    assert told == [("group.lost", 1), ("group.joined", 1), ("group.lost", 0), ("group.joined", 0)]
    assert num_pids(noted, 4) == [2, 2, 2, 2]
