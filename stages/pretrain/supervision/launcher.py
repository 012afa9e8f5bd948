"""The process that forks the ranks: it has imported what they need, so that they begin within a blink.

    python -m stages.pretrain.supervision.launcher [MODULE ...]

It is told what to do, and tells, by one JSON object a line:

    in   {"start": GROUP, "job": path of job.json, "log": path, "ranks": [changes of the environment of each, or null]}
         {"kill": GROUP}
         {"dump": GROUP}
    out  {"group": GROUP, "pids": [of each rank]}
         {"group": GROUP, "rank": n, "status": exit code or -signal, "killed": whether by us}

It ends its ranks and itself when its input ends, and dies with the supervisor, as ranks do with it. It asks for no GPU
and makes no threads, since neither can be forked (the thread of pyarrow's allocator sees to that itself). Signals of
batch systems reach every process of a job; ranks and launcher ignore them, since the supervisor tells the ranks what
to do about them.
"""

import gc
import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from data.order.turns import turn_table
from stages.pretrain.supervision.beats import DUMPS
from stages.pretrain.supervision.processes import PARENT, die_with_parent

# What every rank imports, the slow parts of it at least.
MODULES = (
    "accelerate",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.utils.serialization",
    "transformers",
    "stages.pretrain.checkpoints.writing",
    "stages.pretrain.loop",
    "stages.pretrain.model.documents",
    "stages.pretrain.model.fused_loss",
    "stages.pretrain.monitor.records",
    "stages.pretrain.monitor.trackers",
    "stages.pretrain.setup",
    "stages.pretrain.worker",
)
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Forker:
    """The ranks, by process id."""

    def __init__(self, output: int, closes: Sequence[int]) -> None:
        """output: descriptor for messages; closes: descriptors that are no business of a rank."""
        self._output = output
        self._closes = (output, *closes)
        self._ranks: dict[int, tuple[int, int]] = {}
        self._killed: set[int] = set()

    def start(self, group: int, job: str, log: str, ranks: list[dict[str, str | None]]) -> None:
        """Fork the ranks of a group."""
        sys.stdout.flush()
        sys.stderr.flush()
        launcher, pids = os.getpid(), []
        for rank, changes in enumerate(ranks):
            pid = os.fork()
            if pid == 0:
                _be_rank(launcher, job, log, changes, closes=self._closes)
            self._ranks[pid] = (group, rank)
            pids.append(pid)
        self._tell({"group": group, "pids": pids})

    def kill(self, group: int | None = None) -> None:
        """SIGKILL to the ranks of a group, or to all."""
        for pid, (of_group, _) in self._ranks.items():
            if group is None or of_group == group:
                self._killed.add(pid)
                os.kill(pid, signal.SIGKILL)  # it has not been waited for, so the number is still its own

    def dump(self, group: int) -> None:
        """Let the ranks of a group write down their stacks."""
        for pid, (of_group, _) in self._ranks.items():
            if of_group == group:
                os.kill(pid, DUMPS)

    def reap(self, *, block: bool = False) -> None:
        """Tell of the ranks that have ended; of all of them if `block`."""
        while self._ranks:
            pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
            if pid == 0:
                return
            if pid in self._ranks:
                group, rank = self._ranks.pop(pid)
                code = os.waitstatus_to_exitcode(status)
                by_us = pid in self._killed and code == -signal.SIGKILL
                self._killed.discard(pid)
                self._tell({"group": group, "rank": rank, "status": code, "killed": by_us})

    def _tell(self, message: dict[str, Any]) -> None:
        os.write(self._output, json.dumps(message).encode() + b"\n")


def serve(forker: Forker, wakes: int) -> None:
    """Until the input ends. wakes: becomes readable when a child has ended."""
    waiting = b""
    while True:
        readable, _, _ = select.select([0, wakes], [], [])
        if wakes in readable:
            os.read(wakes, 4096)
            forker.reap()
        if 0 in readable:
            data = os.read(0, 1 << 20)
            if not data:
                return
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "start" in message:
                    forker.start(message["start"], message["job"], message["log"], message["ranks"])
                elif "dump" in message:
                    forker.dump(message["dump"])
                else:
                    forker.kill(message["kill"])


def _be_rank(launcher: int, job: str, log: str, changes: dict[str, str | None], *, closes: Sequence[int]) -> NoReturn:
    """In the forked process."""
    status = 1
    try:
        die_with_parent(launcher)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for descriptor, stream in ((null, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, stream)
        for descriptor in (*closes, null, output):
            os.close(descriptor)
        for name, value in changes.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        gc.enable()
        from stages.pretrain.worker import main

        status = main(job)
        with suppress(OSError):  # a full disk
            sys.stdout.flush()
            sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        # Everything is on the disk. Threads of a collective that will never complete must not keep a failed process,
        # and taking torch down in order takes seconds.
        os._exit(status)


def begin(modules: list[str]) -> None:
    """Import what ranks need, and serve."""
    die_with_parent(int(os.environ[PARENT]))
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    output = os.dup(1)
    os.dup2(2, 1)  # what a library prints while it is imported is no message
    gc.disable()
    for module in (*MODULES, *modules):
        importlib.import_module(module)
    turn_table((1, 1))  # the first kernel that is called loads the machinery of all
    gc.freeze()
    wakes, woken = os.pipe()
    for descriptor in (wakes, woken):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(woken)
    forker = Forker(output, closes=(wakes, woken))
    serve(forker, wakes)
    forker.kill()
    forker.reap(block=True)


if __name__ == "__main__":
    begin(sys.argv[1:])
