import errno
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from data.errors import InputError
from stages import kernel
from stages.errors import BAD_INPUT, FAILED, TRY_AGAIN, TryAgain
from stages.pretrain import trials, worker
from stages.pretrain.job import RunDirectory
from stages.pretrain.step import NonFinite
from stages.pretrain.supervision.attempt import (
    End,
    clear,
    environment,
    explain,
    for_want_of_memory,
    log_tail,
    meeting_place,
)
from stages.pretrain.supervision.groups import Group, GroupEnd, RankEnd
from stages.pretrain.supervision.notices import Requests
from stages.pretrain.supervision.supervise import LEFT, OUT_OF_MEMORY, ROLL_BACK
from stages.pretrain.worker import exit_code, record_failure
from stages.store import Store
from tests.stages.pretrain import micro


def test_the_user_has_the_last_word_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    found = environment(micro.config(threads=3))
    assert (found["OMP_NUM_THREADS"], found["OMP_WAIT_POLICY"]) == ("3", "ACTIVE")
    assert "MALLOC_MMAP_MAX_" not in environment(micro.config(device="cuda"))


@pytest.mark.parametrize("num_processes", [1, 2])
def test_ranks_listen_on_loopback_only(num_processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")  # elsewhere the interface has another name
    assert environment(micro.config(num_processes=num_processes))["GLOO_SOCKET_IFNAME"] == "lo"


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except type(error) as caught:
        return caught


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("no"), BAD_INPUT),
        (NonFinite("step 3", 2), ROLL_BACK),
        (FULL, TRY_AGAIN),
        (raised(RuntimeError("writing failed"), FULL), TRY_AGAIN),
        (CheckpointException("save", {1: (raised(RuntimeError("x"), FULL), None)}), TRY_AGAIN),
        (MemoryError(), OUT_OF_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory"), OUT_OF_MEMORY),
        (raised(RuntimeError("a batch failed"), MemoryError()), OUT_OF_MEMORY),
        (OSError(errno.EIO, "input/output error"), FAILED),
        (RuntimeError("a defect"), FAILED),
    ],
)
def test_exit_codes_say_what_kind_of_end_it_was(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_a_rank_without_memory_names_the_settings_that_take_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allocation that torch's allocator of a CPU refuses."""
    job = micro.worker_job(micro.config(micro_batch_sequences=4), tmp_path, tmp_path / "run")
    job.write()
    monkeypatch.setattr(worker, "work", lambda *_: torch.empty(1 << 60, dtype=torch.uint8))
    assert worker.main(str(job.run.job)) == OUT_OF_MEMORY
    end = explain(job.run, ended(OUT_OF_MEMORY))
    assert end.code == OUT_OF_MEMORY and "lower pretrain.micro_batch_sequences (now 4)" in end.cause
    (record,) = job.run.failures.glob("rank-*.json")
    assert "torch.empty(1 << 60" in json.loads(record.read_text())["traceback"], "and where it was"


def test_a_kill_for_want_of_memory_is_told_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter, config = tmp_path / "vmstat", micro.config(micro_batch_sequences=4)
    monkeypatch.setattr(kernel, "_counters", lambda: (counter,))
    counter.write_text("oom_kill 4\n")
    before, killed = kernel.oom_kills(), End(-9, "a training process was killed by SIGKILL")
    assert for_want_of_memory(killed, before, config) == killed
    counter.write_text("oom_kill 5\n")
    assert for_want_of_memory(End(-15, "why"), before, config) == End(-15, "why")
    end = for_want_of_memory(killed, before, config)
    assert end.code == OUT_OF_MEMORY and "lower pretrain.micro_batch_sequences (now 4)" in end.cause


def test_a_full_disk_is_told_by_the_exit_code_if_nothing_can_be_written_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even into the log."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise FULL

    def fails(*_: Any) -> None:
        raise FULL

    job = micro.worker_job(micro.config(), tmp_path, tmp_path / "run")
    job.write()
    monkeypatch.setattr(worker, "work", fails)
    monkeypatch.setattr(worker, "write_json", fails)
    monkeypatch.setattr(sys, "stderr", Full())
    assert worker.main(str(job.run.job)) == TRY_AGAIN


def ended(*statuses: int, killed: Sequence[int] = (), launcher: int | None = None) -> GroupEnd:
    """A group whose ranks have ended with these statuses, some of them by our own hand."""
    group = Group(job=Path("job.json"), log=Path("log"), rendezvous=Path("meet"), size=len(statuses))
    ranks = [RankEnd(rank=rank, status=status, killed=rank in killed) for rank, status in enumerate(statuses)]
    return GroupEnd(group=group, ranks=ranks, launcher_status=launcher)


def test_the_most_telling_rank_explains_the_end(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert explain(run, ended(0, 0)) == End(0, "")
    assert explain(run, ended(-11)) == End(FAILED, "a training process was killed by SIGSEGV without saying why")
    assert "the disk is full" in explain(run, ended(1, 75)).cause
    assert explain(run, ended(71)) == End(71, "a training process ended with exit code 71 without saying why")
    assert explain(run, ended(LEFT, LEFT)).code == LEFT
    assert explain(run, ended(LEFT, 1)).code == FAILED
    record_failure(run, 0, FAILED, RuntimeError("Connection closed by peer"))
    assert explain(run, ended(1, -9, killed=[1])) == End(FAILED, "RuntimeError: Connection closed by peer", rank=0)
    record_failure(run, 2, TRY_AGAIN, FULL)
    assert explain(run, ended(1, 1, 75)).code == TRY_AGAIN
    record_failure(run, 1, ROLL_BACK, NonFinite("step 7: loss nan", 6))
    assert explain(run, ended(1, 70, 75)) == End(ROLL_BACK, "step 7: loss nan", 6, 1)


def test_a_kill_from_outside_outweighs_peers_that_lost_their_peer(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    killed = End(-9, "a training process was killed by SIGKILL")
    assert explain(run, ended(-9)) == killed
    record_failure(run, 0, FAILED, RuntimeError("Connection closed by peer"))
    assert explain(run, ended(1, -9)) == killed
    assert explain(run, ended(1, -9, launcher=-9)) == End(-9, "the launcher was killed by SIGKILL")
    record_failure(run, 1, BAD_INPUT, InputError("no such domain"))
    assert explain(run, ended(1, -9)) == End(BAD_INPUT, "no such domain", rank=1)
    assert explain(run, ended(launcher=-9)).code == BAD_INPUT


def test_a_launcher_that_ends_by_itself_is_a_defect(tmp_path: Path) -> None:
    end = explain(RunDirectory(tmp_path), ended(0, launcher=1))
    assert end == End(FAILED, "the launcher ended with exit code 1 without saying why")


def test_what_an_attempt_left_is_gone_before_the_next_one(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    record_failure(run, 1, FAILED, RuntimeError("a defect"))
    Requests(run.request).ask_to_leave("SIGTERM")
    places = {meeting_place(run) for _ in range(3)}
    assert len(places) == 3, "ranks of an attempt that is still dying would meet the new ones"
    for place in places:
        place.touch()
    clear(run)
    assert explain(run, ended(1)).cause == "a training process ended with exit code 1 without saying why"
    assert not run.request.exists() and not any(place.exists() for place in places)


def test_a_trial_that_was_killed_from_outside_is_to_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not one that has run out of memory, which it would do again."""
    tokens = micro.tokens_artifact(Store(tmp_path))
    monkeypatch.setattr(trials, "train_once", lambda job: End(-9, "a training process was killed by SIGKILL"))
    with pytest.raises(TryAgain, match="killed by SIGKILL"):
        trials.trial(micro.config(), micro.MODEL, tokens.path, tmp_path / "scratch")
    monkeypatch.setattr(trials, "train_once", lambda job: End(OUT_OF_MEMORY, "lower pretrain.micro_batch_sequences"))
    with pytest.raises(InputError, match="micro_batch_sequences"):
        trials.trial(micro.config(), micro.MODEL, tokens.path, tmp_path / "another")


def test_a_failure_is_recorded_with_its_traceback(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    record_failure(run, 3, FAILED, raised(RuntimeError("outer"), ValueError("inner")))
    record: dict[str, Any] = json.loads((run.failures / "rank-00003.json").read_text())
    assert (record["rank"], record["exit_code"], record["error"]) == (3, FAILED, "RuntimeError")
    assert "ValueError: inner" in record["traceback"]


def test_the_end_of_the_log_is_shown(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert log_tail(run) == ""
    run.log.write_bytes(b"\xff not UTF-8\n" + b"".join(b"line %d\n" % number for number in range(100)))
    shown = log_tail(run)
    assert "line 99" in shown and "line 70" in shown and "line 69" not in shown
    run.log.write_bytes(b"x" * (1 << 20) + b"\nthe end\n")
    assert len(log_tail(run)) < 1 << 17 and log_tail(run).endswith("the end")
