"""A user relies on: groups of ranks begin and end apart from one another, and nothing is left of them in the end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from stages.pretrain.job import Job
from stages.pretrain.supervision.attempt import clear, explain, meeting_place
from stages.pretrain.supervision.groups import Group, GroupEnd
from tests.stages.pretrain import faults, micro
from tests.stages.pretrain.forked import kept_launcher
from tests.stages.pretrain.runs import alive

STEPS = 3


def group(job: Job, number: int, size: int, first_slot: int) -> Group:
    job.write()
    clear(job.run)
    return Group(
        number=number,
        job=job.run.job,
        log=job.run.log,
        rendezvous=meeting_place(job.run),
        size=size,
        first_slot=first_slot,
    )


def until(condition: Callable[[list[GroupEnd]], bool]) -> list[GroupEnd]:
    """All ends until the condition on them holds."""
    launcher, ends = kept_launcher(), list[GroupEnd]()
    while not condition(ends):
        ends += launcher.poll()
        launcher.wait(0.1)
    return ends


@pytest.mark.slow
def test_a_group_is_killed_and_begun_again_while_another_goes_on(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank waits for a signal, the other group for the rank of it that does not come."""
    faults.plan(monkeypatch, tmp_path / "marks", ("begin", 2, 0, "wait"))
    jobs = [
        micro.worker_job(
            micro.config(num_processes=size, num_steps=STEPS, checkpoint_every_steps=STEPS),
            tokens,
            tmp_path / str(size),
            hook=hook,
        )
        for size, hook in ((1, faults.HOOK), (2, ""))
    ]
    launcher = kept_launcher().serve(jobs[0])
    launcher.start(group(jobs[0], 0, 1, 0))
    launcher.start(group(jobs[1], 7, 2, 1))
    (whole,) = until(lambda ends: bool(ends))
    assert whole.group.number == 7 and [end.status for end in whole.ranks] == [0, 0]
    assert explain(jobs[1].run, whole).code == 0
    assert list(launcher.running) == [0]
    until(lambda ends: (tmp_path / "marks" / "0").exists())
    (waiting,) = (psutil.Process(pid) for pid in launcher.running[0].pids.values())
    launcher.kill(0)
    (killed,) = until(lambda ends: bool(ends))
    assert [(end.status, end.killed) for end in killed.ranks] == [(-9, True)] and not alive(waiting)
    launcher.start(group(jobs[0], 0, 1, 0))
    (again,) = until(lambda ends: bool(ends))
    assert explain(jobs[0].run, again).code == 0 and not launcher.running


def test_a_rank_that_ends_badly_takes_its_group_with_it(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the other one would wait for it for a long time."""
    faults.plan(monkeypatch, tmp_path / "marks", ("begin", 2, 0, "wait"), ("begin", 2, 1, "crash"))
    job = micro.worker_job(micro.config(num_processes=2, num_steps=STEPS), tokens, tmp_path / "run", hook=faults.HOOK)
    launcher = kept_launcher().serve(job)
    launcher.start(group(job, 0, 2, 0))
    (end,) = until(lambda ends: bool(ends))
    assert {end.rank: (end.status, end.killed) for end in end.ranks} == {0: (-9, True), 1: (1, False)}
    assert explain(job.run, end).cause == "RuntimeError: an injected crash in step 2"


def test_a_start_of_many_ranks_does_not_wait_for_a_launcher_that_does_not_read(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since what is said fits into a pipe, which holds 64 KiB."""
    told: list[dict[str, Any]] = []
    job = micro.worker_job(micro.config(), tokens, tmp_path / "run")
    launcher = kept_launcher().serve(job)
    monkeypatch.setattr(launcher, "_say", told.append)
    monkeypatch.setattr(launcher, "running", {})
    launcher.start(group(job, 0, 64, 0))
    assert len(json.dumps(told)) < 1 << 16
    assert [ranks["RANK"] for ranks in told[0]["ranks"]] == [str(rank) for rank in range(64)]
