"""Ranks that are forked from a process which has imported torch, transformers and accelerate: to start Python with
these takes a hundred times as long as a training of the micro model. Each is a process of its own, as those of torchrun
are.

    with workers_forked():
        micro.pretrain(config, store)        # its workers are forked
    run_ranks(function, argument, size=3)    # function(argument) on three ranks
"""

import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import pytest

from stages.pretrain import worker
from stages.pretrain.job import Job
from stages.pretrain.supervision import supervisor
from stages.pretrain.supervision.attempt import environment
from stages.pretrain.supervision.launch import exit_code

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
    """Call a function of a module on `size` ranks, with torchrun's variables and `variables` in the environment; what
    they print goes to `log`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
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


def wait_for_ranks(processes: list[BaseProcess], watch: Callable[[], None] = lambda: None) -> int:
    """Call `watch` until all have ended, or one has failed, which ends the others. The exit code is that of
    `stages.pretrain.supervision.attempt.Workers`."""
    while any(process.is_alive() for process in processes) and not any(process.exitcode for process in processes):
        watch()
        time.sleep(POLL_SECONDS)
    codes = [process.exitcode for process in processes if process.exitcode]
    for process in processes:
        process.terminate()
        process.join()
    watch()
    if len(processes) == 1:
        return codes[0] if codes else 0
    return exit_code(codes) if codes else 0


def run_ranks(function: Callable[..., object], *arguments: Any, size: int, log: Path) -> None:
    """To their end; one that fails fails the test, with what they have printed."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    code = wait_for_ranks(start_ranks(function, *arguments, size=size, log=log, variables=variables))
    assert code == 0, f"exit code {code}:\n{log.read_text(errors='replace')}"


class ForkedWorkers:
    """In the place of `stages.pretrain.supervision.attempt.Workers`."""

    def __init__(self, job: Job) -> None:
        for path in job.run.failures.glob("rank-*.json"):
            path.unlink()
        job.run.result.unlink(missing_ok=True)
        config = job.config
        self._ranks = start_ranks(
            worker.main, str(job.run.job), size=config.num_processes, log=job.run.log, variables=environment(config)
        )

    def wait(self, watch: Callable[[], None]) -> int:
        return wait_for_ranks(self._ranks, watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._ranks:
            process.kill()
            process.join()


@contextmanager
def workers_forked() -> Iterator[None]:
    """Supervisors of this process fork their workers from here on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "Workers", ForkedWorkers)
        yield
