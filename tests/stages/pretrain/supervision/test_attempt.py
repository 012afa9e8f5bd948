import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from torch.distributed.checkpoint.api import CheckpointException

from data.errors import InputError
from stages.errors import BAD_INPUT, FAILED, TRY_AGAIN, TryAgain
from stages.pretrain import trials
from stages.pretrain.job import Job, RunDirectory
from stages.pretrain.step import NonFinite
from stages.pretrain.supervision import launch
from stages.pretrain.supervision.attempt import End, command, environment, explain, log_tail
from stages.pretrain.supervision.supervise import ROLL_BACK
from stages.pretrain.worker import exit_code, record_failure
from stages.store import Store
from tests.stages.pretrain import micro


def test_one_process_is_launched_as_it_is_and_several_by_torchrun_on_loopback(tmp_path: Path) -> None:
    one = command(micro.worker_job(micro.config(), tmp_path, tmp_path))
    assert one[1:] == ["-m", "stages.pretrain.worker", str(tmp_path / "job.json")]
    three = command(micro.worker_job(micro.config(num_processes=3), tmp_path, tmp_path))
    assert three[2] == "stages.pretrain.supervision.launch"
    pairs = dict(zip(three[3:], three[4:], strict=False))
    assert pairs["--nproc-per-node"] == "3"
    assert pairs["--rdzv-backend"] == "c10d"
    assert pairs["--rdzv-endpoint"].startswith("127.0.0.1:")


def test_the_user_has_the_last_word_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    found = environment(micro.config(threads=3))
    assert (found["OMP_NUM_THREADS"], found["OMP_WAIT_POLICY"]) == ("3", "ACTIVE")
    assert "MALLOC_MMAP_MAX_" not in environment(micro.config(device="cuda"))


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
        (OSError(errno.EIO, "input/output error"), FAILED),
        (RuntimeError("a defect"), FAILED),
    ],
)
def test_exit_codes_say_what_kind_of_end_it_was(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_the_most_telling_rank_explains_the_end(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert explain(run, 0) == End(0, "")
    assert explain(run, -11) == End(FAILED, "a training process was killed by SIGSEGV without saying why")
    assert explain(run, 75) == End(75, "a training process ended with exit code 75 without saying why")
    record_failure(run, 0, FAILED, RuntimeError("Connection closed by peer"))
    assert explain(run, 1) == End(FAILED, "RuntimeError: Connection closed by peer")
    record_failure(run, 2, TRY_AGAIN, FULL)
    assert explain(run, 1).code == TRY_AGAIN
    record_failure(run, 1, ROLL_BACK, NonFinite("step 7: loss nan", 6))
    assert explain(run, 1) == End(ROLL_BACK, "step 7: loss nan", 6)


@pytest.mark.parametrize("returned", [-9, 137])
def test_a_kill_from_outside_outweighs_peers_that_lost_their_peer(tmp_path: Path, returned: int) -> None:
    run = RunDirectory(tmp_path)
    assert explain(run, returned) == End(-9, "a training process was killed by SIGKILL")
    record_failure(run, 0, FAILED, RuntimeError("Connection closed by peer"))
    assert explain(run, returned) == End(-9, "a training process was killed by SIGKILL")
    record_failure(run, 1, BAD_INPUT, InputError("no such domain"))
    assert explain(run, returned) == End(BAD_INPUT, "no such domain")


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([1, -15], FAILED),
        ([1, -9, -15], 137),
        ([-15, 1], 143),
        ([-11, -15], 139),
        ([1, 75, -15], TRY_AGAIN),
        ([70, 2], BAD_INPUT),
    ],
)
def test_the_launcher_passes_on_how_its_ranks_ended(codes: list[int], code: int) -> None:
    assert launch.exit_code(codes) == code


class Killed:
    """Workers that the kernel ended for want of memory."""

    def __init__(self, job: Job) -> None:
        pass

    def wait(self, watch: Callable[[], None]) -> int:
        return -9

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def test_a_trial_that_was_killed_from_outside_is_to_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = micro.tokens_artifact(Store(tmp_path))
    monkeypatch.setattr(trials, "Workers", Killed)
    with pytest.raises(TryAgain, match="killed by SIGKILL"):
        trials.trial(micro.config(), micro.MODEL, tokens.path, tmp_path / "scratch")


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
