"""One attempt: the worker processes from their start to their end, and what is to be said about that end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from stages.errors import FAILED
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import Job, RunDirectory
from stages.pretrain.supervision.processes import PARENT
from stages.pretrain.supervision.supervise import TELLING

POLL_SECONDS = 0.2
GRACE_SECONDS = 5.0
SHOWN_LOG_LINES = 30
# Signals by which an operator, a batch system or the kernel for want of memory ends a process that is not at fault.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Large blocks come from the heap and stay in it. Without this glibc maps and unmaps every activation, measured to cost
# 1.4 to 2 times the CPU time of a step.
HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 << 30), "MALLOC_TOP_PAD_": str(256 << 20)}


def command(job: Job) -> list[str]:
    """The command line of the workers: one process as it is, several under torchrun with its rendezvous on the
    loopback interface."""
    if job.config.num_processes == 1:
        return [sys.executable, "-m", "stages.pretrain.worker", str(job.run.job)]
    return [
        *(sys.executable, "-m", "stages.pretrain.supervision.launch"),
        *("--nnodes", "1", "--nproc-per-node", str(job.config.num_processes)),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"),
        *("--max-restarts", "0", "--monitor-interval", "0.1"),
        *("--module", "stages.pretrain.worker", str(job.run.job)),
    ]


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
    }
    if config.device != "cuda":
        wanted |= HEAP
    # torch knows the variable by an older name too, and that one first.
    if config.device != "cpu" and config.allocator_options and "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:
        wanted["PYTORCH_ALLOC_CONF"] = config.allocator_options
    # Ranks of one machine talk over loopback, whatever its host name resolves to.
    if config.num_processes > 1 and sys.platform == "linux":
        wanted["GLOO_SOCKET_IFNAME"] = "lo"
    return {**wanted, **os.environ, PARENT: str(os.getpid())}


class Workers:
    """The processes of one attempt; leaving the context ends them, however it is left."""

    def __init__(self, job: Job) -> None:
        self._run = job.run
        for path in job.run.failures.glob("rank-*.json"):
            path.unlink()
        job.run.result.unlink(missing_ok=True)
        with open(job.run.log, "ab") as log:
            self._process = subprocess.Popen(
                command(job),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(job.config),
                start_new_session=True,
            )

    def wait(self, watch: Callable[[], None]) -> int:
        """Call `watch` several times a second until the processes have ended, and once more after that. Returns the
        exit code."""
        while self._process.poll() is None:
            watch()
            time.sleep(POLL_SECONDS)
        watch()
        return self._process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@dataclass(frozen=True)
class End:
    """What an attempt ended with. `code`: an exit code, negative for a signal from outside that killed a process; peers
    that lost it record an error of their own. `draw`: the batch that was not finite, if that was it."""

    code: int
    cause: str
    draw: int | None = None


def explain(run: RunDirectory, returned: int) -> End:
    """The end of an attempt whose first process returned `returned`."""
    if returned == 0:
        return End(0, "")
    number = -returned if returned < 0 else returned - 128
    killed = number in FROM_OUTSIDE
    records: list[dict[str, Any]] = [
        json.loads(path.read_text(encoding="utf-8")) for path in run.failures.glob("rank-*.json")
    ]
    if killed and not any(record["exit_code"] in TELLING for record in records):
        return End(-number, f"a training process was killed by {signal.Signals(number).name}")
    if not records:
        how = f"was killed by {signal.Signals(number).name}" if returned < 0 else f"ended with exit code {returned}"
        return End(returned if returned in TELLING else FAILED, f"a training process {how} without saying why")
    rank = {code: place for place, code in enumerate(TELLING)}
    record = min(records, key=lambda r: (rank.get(r["exit_code"], len(TELLING)), r["time"]))
    name = "" if record["exit_code"] in TELLING else f"{record['error']}: "
    return End(record["exit_code"], f"{name}{record['message']}", record["draw"])


def log_tail(run: RunDirectory) -> str:
    """The last lines of the workers' log, for an error message."""
    try:
        lines = run.log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_LOG_LINES:]
    except FileNotFoundError:
        return ""
    return "\n".join([f"Last lines of {run.log}:", *(f"  {line}" for line in lines)])
