"""Whole runs on several processes to which everything happens that a supervisor is there for."""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stages.errors import TryAgain
from stages.pretrain.job import RunDirectory, read_lines
from stages.store import Artifact, Store
from tests.stages.pretrain import faults, micro
from tests.stages.pretrain.forked import workers_forked
from tests.stages.pretrain.runs import config, incidents, metrics, state_digests

LEDGER = "LONGHAUL_TEST_LEDGER"
SPARSE = partial(config, checkpoint_seconds=1000, checkpoint_every_steps=5)  # none but the durable checkpoints


def keep(point: str, step: int, rank: int, value: Any) -> Any:
    """A fault injector that also puts down which samples a rank has been given in each step."""
    if point == "batch":
        samples = sorted(zip(value.samples.domain.tolist(), value.samples.sequence.tolist(), strict=True))
        with open(Path(os.environ[LEDGER]) / f"{step}", "a", encoding="utf-8") as file:
            file.write(json.dumps({"world": os.environ.get("WORLD_SIZE", "1"), "samples": samples}) + "\n")
    return faults.inject(point, step, rank, value)


def samples(ledger: Path) -> Iterator[tuple[str, list[Any]]]:
    """Of each step, in order: the size of the world that completed it last, and all its samples."""
    for path in sorted(ledger.iterdir(), key=lambda path: int(path.name)):
        lines = read_lines(path)
        world = lines[-1]["world"]
        yield world, sorted(sample for line in lines[-int(world) :] for sample in line["samples"])


def trained(
    root: Path, monkeypatch: pytest.MonkeyPatch, *planned: tuple[str, int, int, str], **settings: Any
) -> tuple[Store, Artifact, list[dict[str, Any]]]:
    """A run at which these faults happen, by the same command over and over; with what it tells."""
    root.mkdir()
    ledger = root / "ledger"
    ledger.mkdir()
    monkeypatch.setenv(LEDGER, str(ledger))
    faults.plan(monkeypatch, root / "marks", *planned)
    store, events = Store(root), list[dict[str, Any]]()
    with workers_forked():
        while True:
            try:
                hook = f"{__name__}:keep"
                return store, micro.pretrain(SPARSE(**settings), store, hook=hook, listener=events.append), events
            except TryAgain as stopped:
                events.append({"kind": "stopped", "text": str(stopped)})


@pytest.mark.slow
def test_hangs_lost_launchers_and_notices_change_nothing_in_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank stops in a step whose time has been measured; the launcher is killed; a batch system sends its notice."""
    calm, undisturbed, _ = trained(tmp_path / "calm", monkeypatch, num_processes=2)
    timeouts = {"collective_timeout_least_seconds": 1.5, "collective_timeout_seconds": 120}
    store, artifact, events = trained(
        tmp_path / "disturbed",
        monkeypatch,
        ("begin", 8, 1, "stop"),
        ("update", 12, 0, "launcher"),
        ("begin", 17, 0, "notice"),
        num_processes=2,
        **timeouts,
    )
    hang, lost = incidents(store, artifact)
    assert (hang["exit_code"], hang["decision"], hang["rank"]) == (124, "relaunch", 1)
    assert "rank 1 is stopped" in hang["cause"] and "of step 8" in hang["cause"]
    assert "rank 0: gloo:" in hang["cause"], "what the other one waits for"
    run = RunDirectory(store.runs_path(artifact.key))
    assert "_pre_forward" in (run.stacks / "rank-0.txt").read_text()
    assert (lost["exit_code"], lost["decision"]) == (-9, "relaunch") and "the launcher was killed" in lost["cause"]
    (stopped,) = [event["text"] for event in events if event["kind"] == "stopped"]
    assert stopped == "stopped on request after step 17; the same command goes on from there"
    run_ends = [line["step"] for line in read_lines(run.saves) if line["step"] % 5]
    assert run_ends == [17], "the only checkpoint between durable ones is that of the notice"
    assert metrics(artifact) == metrics(undisturbed)
    assert artifact.digest == undisturbed.digest
    assert state_digests(store) == state_digests(calm)
    assert list(samples(tmp_path / "disturbed" / "ledger")) == list(samples(tmp_path / "calm" / "ledger"))


@pytest.mark.slow
def test_a_run_that_loses_a_process_and_gets_it_back_has_the_same_samples_and_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From four processes to three, and back to four."""
    _, undisturbed, _ = trained(tmp_path / "four", monkeypatch, num_processes=4)
    store, artifact, events = trained(
        tmp_path / "elastic",
        monkeypatch,
        ("begin", 7, 3, "shrink"),
        ("begin", 13, 0, "grow"),
        num_processes=4,
        least_processes=3,
    )
    (shrunk,) = incidents(store, artifact)
    assert (shrunk["exit_code"], shrunk["decision"]) == (-9, "relaunch")
    notes = [event["text"] for event in events if "instead of" in event.get("text", "")]
    assert notes == ["3 processes instead of 4", "4 processes instead of 3"]
    whole, changed = (list(samples(tmp_path / name / "ledger")) for name in ("four", "elastic"))
    assert [world for world, _ in changed] == ["4"] * 5 + ["3"] * 8 + ["4"] * 7
    assert [found for _, found in changed] == [found for _, found in whole]
    for a, b in zip(metrics(undisturbed), metrics(artifact), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-4)
        assert (a["step"], a["tokens"], a["learning_rate"]) == (b["step"], b["tokens"], b["learning_rate"])
