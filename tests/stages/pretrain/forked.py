"""Ranks that are forked from a process which has imported torch, transformers and accelerate: to start Python with
these takes a hundred times as long as a training of the micro model.

    with workers_forked():
        micro.pretrain(config, store)        # by one launcher for all runs of this process
    run_ranks(function, argument, size=3)    # function(argument) on three ranks
"""

import atexit
import multiprocessing
import os
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import pytest

from stages.pretrain.job import Job
from stages.pretrain.parallel.ranks import RENDEZVOUS
from stages.pretrain.supervision import supervisor
from stages.pretrain.supervision.attempt import environment
from stages.pretrain.supervision.groups import Launcher
from tests.stages.pretrain import micro

POLL_SECONDS = 0.05
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "stages.pretrain.loop",
        "stages.pretrain.monitor.records",
        "stages.pretrain.setup",
        "stages.pretrain.worker",
        "accelerate",
        "torch.distributed.checkpoint",
        "torch.distributed.fsdp",
        "transformers.models.llama.modeling_llama",
    ]
)


def start_ranks(
    function: Callable[..., object], *arguments: Any, size: int, log: Path, variables: dict[str, str]
) -> list[BaseProcess]:
    """Call a function of a module on `size` ranks, with the launcher's variables, those by which torch's `env://` meets
    and `variables` in the environment; what they print goes to `log`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        RENDEZVOUS: f"{log}.rendezvous-{uuid.uuid4().hex}",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    processes = []
    for rank in range(size):
        place = {**world, "RANK": rank, "LOCAL_RANK": rank} if size > 1 else {}
        settings = {**variables, **{name: str(value) for name, value in place.items()}}
        processes.append(CONTEXT.Process(target=_begin, args=(function, arguments, settings, str(log)), daemon=True))
        processes[-1].start()
    return processes


def _begin(function: Callable[..., object], arguments: tuple[Any, ...], settings: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(settings)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    status = function(*arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 0)


def wait_for_ranks(processes: list[BaseProcess]) -> int:
    """Until all have ended, or one has failed, which ends the others. The exit code of the first that failed, or 0."""
    while any(process.is_alive() for process in processes) and not any(process.exitcode for process in processes):
        time.sleep(POLL_SECONDS)
    codes = [process.exitcode for process in processes if process.exitcode]
    for process in processes:
        process.terminate()
        process.join()
    return codes[0] if codes else 0


def run_ranks(function: Callable[..., object], *arguments: Any, size: int, log: Path) -> None:
    """To their end; one that fails fails the test, with what they have printed."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    code = wait_for_ranks(start_ranks(function, *arguments, size=size, log=log, variables=variables))
    assert code == 0, f"exit code {code}:\n{log.read_text(errors='replace')}"


class KeptLauncher(Launcher):
    """That of all runs of this process, one after the other, for which only the first one waits."""

    def serve(self, job: Job) -> Self:
        """Be the launcher of the next run."""
        self._environment = environment(job.config)
        return self

    def close(self) -> None:
        for number in list(self.running):
            self.kill(number)
        while self.running:
            self.poll()
            self.wait(POLL_SECONDS)


@cache
def kept_launcher() -> KeptLauncher:
    """It dies with this process."""
    log = Path(tempfile.mkdtemp(prefix="launcher-")) / "log"
    atexit.register(shutil.rmtree, log.parent, ignore_errors=True)
    return KeptLauncher(environment(micro.config()), log=log)


@contextmanager
def workers_forked() -> Iterator[None]:
    """Supervisors of this process share a launcher from here on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "launcher_for", lambda job: kept_launcher().serve(job))
        yield
