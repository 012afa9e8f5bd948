"""One attempt: the ranks from their start to their end, and what is to be said about that end."""

import json
import os
import shutil
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages import kernel, out_of_memory
from stages.errors import FAILED, OK, TRY_AGAIN
from stages.files import last_bytes
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import Job, RunDirectory
from stages.pretrain.parallel.redundant_groups import num_groups
from stages.pretrain.supervision.groups import FROM_OUTSIDE, Group, GroupEnd, Launcher
from stages.pretrain.supervision.launchers import Launchers
from stages.pretrain.supervision.supervise import LEFT, OUT_OF_MEMORY, TELLING

POLL_SECONDS = 0.2
SHOWN_LOG_LINES = 30
RECORDED_COLLECTIVES = "1000"  # by torch's flight recorder, for a look into hangs
# Large blocks come from the heap and stay in it. Without this glibc maps and unmaps every activation, measured to cost
# 1.4 to 2 times the CPU time of a step.
HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 << 30), "MALLOC_TOP_PAD_": str(256 << 20)}


def environment(config: PretrainConfig) -> dict[str, str]:
    """The environment of the workers. Nothing is set that the user has set already."""
    threads = str(config.threads)
    wanted = {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TORCH_FR_BUFFER_SIZE": RECORDED_COLLECTIVES,
    }
    if config.device != "cuda":
        wanted |= HEAP
    if config.device != "cpu":
        wanted["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the launcher asks for GPUs without starting CUDA, and forks
    # torch knows the variable by an older name too, and that one first.
    if config.device != "cpu" and config.allocator_options and "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:
        wanted["PYTORCH_ALLOC_CONF"] = config.allocator_options
    # Ranks of one machine talk over loopback, whatever its host name resolves to; also one alone listens.
    if sys.platform == "linux":
        wanted["GLOO_SOCKET_IFNAME"] = "lo"
    return {**wanted, **os.environ}


def launcher_for(job: Job) -> Launcher | Launchers:
    """What launches the groups of `job`: where they are redundant, each by a process of its own."""
    if job.config.redundant:
        return Launchers([one_launcher(job) for _ in range(num_groups(job.config))])
    return one_launcher(job)


def one_launcher(job: Job) -> Launcher:
    """A launcher with the environment and the modules that ranks of `job` need."""
    family = job.config.model.resolved().family
    return Launcher(
        environment(job.config),
        log=job.run.log,
        modules=[f"transformers.models.{family}.modeling_{family}"],
    )


def clear(run: RunDirectory) -> None:
    """Remove what ranks of an earlier attempt have left for the supervisor to read, and files by which they met."""
    for path in run.failures.glob("rank-*.json"):
        path.unlink()
    run.result.unlink(missing_ok=True)
    run.request.unlink(missing_ok=True)
    shutil.rmtree(run.rendezvous, ignore_errors=True)


def group_of(job: Job, variables: Mapping[str, str] | None = None) -> Group:
    """All ranks of a job as one group. variables: for their environment."""
    return Group(
        job=job.run.job,
        log=job.run.log,
        rendezvous=meeting_place(job.run),
        size=job.config.num_processes,
        variables=variables or {},
    )


def meeting_place(run: RunDirectory) -> Path:
    """A file by which the ranks of one group meet once."""
    run.rendezvous.mkdir(exist_ok=True)
    return run.rendezvous / uuid.uuid4().hex


def train_once(job: Job) -> "End":
    """One attempt that nobody watches, from `job` to its end."""
    job.write()
    kills = kernel.oom_kills()
    with one_launcher(job) as launcher:
        clear(job.run)
        launcher.start(group_of(job))
        while not (ends := launcher.poll()):
            launcher.wait(POLL_SECONDS)
    return for_want_of_memory(explain(job.run, ends[0]), kills, job.config)


@dataclass(frozen=True)
class End:
    """What an attempt ended with. `code`: an exit code, negative for a signal from outside that killed a process; peers
    that lost it record an error of their own. `draw`: the batch that was not finite, if that was it; `rank`: the one
    that says so."""

    code: int
    cause: str
    draw: int | None = None
    rank: int | None = None


def explain(run: RunDirectory, end: GroupEnd) -> End:
    """The end of an attempt. What a rank has put down counts for more than how it ended, and a signal from outside for
    more than what its peers have put down, unless that is telling."""
    statuses = [(rank.status, rank.rank) for rank in end.ranks if rank.status != OK and not rank.killed]
    records = _records(run)
    telling = [record for record in records if record["exit_code"] in TELLING]
    if end.launcher_status is not None:
        if not telling:
            return _without_a_word("the launcher", end.launcher_status)
    elif not statuses and not any(rank.killed for rank in end.ranks):
        return End(OK, "")
    outside = [status for status, _ in statuses if -status in FROM_OUTSIDE]
    if outside and not telling:
        return _without_a_word("a training process", outside[0])
    if not records:
        left = [status for status, _ in statuses if status != LEFT]
        return End(LEFT, "left on request") if statuses and not left else _silent(left)
    record = min(records, key=lambda r: (_place(r["exit_code"]), r["clock"]))
    name = "" if record["exit_code"] in TELLING else f"{record['error']}: "
    return End(record["exit_code"], f"{name}{record['message']}", record["draw"], record["rank"])


def for_want_of_memory(end: End, kills: Mapping[str, int], config: PretrainConfig) -> End:
    """`end` itself or, of a process that was killed while the kernel had no memory left, the words on that. kills: how
    many the kernel had killed for it before (`kernel.oom_kills`)."""
    if end.code != -signal.SIGKILL or not kernel.oom_kills_since(kills):
        return end
    advice = out_of_memory.advice("pretrain", config)
    return End(OUT_OF_MEMORY, f"{end.cause}: the kernel had no memory left; {advice}", rank=end.rank)


def _records(run: RunDirectory) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in run.failures.glob("rank-*.json")]


def _silent(statuses: Sequence[int]) -> End:
    """Of ranks that have put nothing down, the most telling one first."""
    if not statuses:
        return End(-signal.SIGKILL, "the training processes were ended")
    status = min(statuses, key=_place)
    if status == TRY_AGAIN:
        return End(status, "the disk is full: a training process could not even write down why it ended")
    return _without_a_word("a training process", status)


def _place(code: int) -> int:
    """How much an exit code says, the more the less."""
    return TELLING.index(code) if code in TELLING else len(TELLING)


def _without_a_word(what: str, status: int) -> End:
    """The end of a process that ended with `status`."""
    if -status in FROM_OUTSIDE:
        return End(status, f"{what} was killed by {signal.Signals(-status).name}")
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
    return End(status if status in TELLING else FAILED, f"{what} {how} without saying why")


def log_tail(run: RunDirectory) -> str:
    """The last lines of the workers' log, for an error message."""
    lines = last_bytes(run.log).decode("utf-8", "replace").splitlines()[-SHOWN_LOG_LINES:]
    if not lines:
        return ""
    return "\n".join([f"Last lines of {run.log}:", *(f"  {line}" for line in lines)])
