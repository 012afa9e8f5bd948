"""Groups of ranks under the launcher: started, watched for their ends, and brought down.

A group is a world of its own: its ranks meet through one file and end together. A run without redundancy has one group
of all ranks; one with redundancy has several, of which each may end and be started again while the others go on.

    with Launcher(environment(config), log=run.log) as launcher:
        launcher.start(Group(...))
        while not (ends := launcher.poll()): ...

The launcher is a process that has imported all that a rank needs and forks ranks (see `launcher`), so that only the
first start of a run pays for the imports. If it is lost, so are its ranks, and the next start begins another one.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stages.errors import OK
from stages.pretrain.parallel.ranks import RENDEZVOUS, SLOT
from stages.pretrain.supervision.processes import PARENT
from stages.pretrain.supervision.supervise import LEFT

LEAVING_SECONDS = 5.0
# By which torchrun, MPI and Slurm tell a process its place in a world that is not ours.
WORLD = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") + tuple(
    f"{system}_{name}"
    for system, names in {
        "PMI": ("SIZE", "RANK"),
        "OMPI_COMM_WORLD": ("SIZE", "RANK", "LOCAL_SIZE", "LOCAL_RANK"),
        "MV2_COMM_WORLD": ("SIZE", "RANK", "LOCAL_SIZE", "LOCAL_RANK"),
    }.items()
    for name in names
)
# Signals by which an operator, a batch system or the kernel for want of memory ends a process that is not at fault.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SETTLE_SECONDS = 0.5  # for peers of a rank that ended badly, to say why they do if it is not for want of that rank


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that form one world. number: of the group, 0 where there is one; job: job.json; rendezvous: file, of a name
    that is never used again, by which the ranks meet; first_slot: place of its rank 0 among all ranks of the run
    (device, record of beats), its others follow; size: number of ranks; variables: what else they find in their
    environment."""

    number: int = 0
    job: Path
    log: Path
    rendezvous: Path
    size: int
    first_slot: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def slots(self) -> range:
        return range(self.first_slot, self.first_slot + self.size)


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """status: exit code, negative for a signal. killed: by us, so that the status says nothing of the rank."""

    rank: int
    status: int
    killed: bool = False


@dataclass(frozen=True, kw_only=True)
class GroupEnd:
    """A group of which no process is left. ranks: in the order in which they ended. launcher_status: of a
    launcher that was lost."""

    group: Group
    ranks: Sequence[RankEnd]
    launcher_status: int | None = None


@dataclass
class Running:
    """A group whose ranks have not all ended. pids: by rank, empty until the launcher has forked them."""

    group: Group
    pids: dict[int, int] = field(default_factory=dict)
    ended: list[RankEnd] = field(default_factory=list)
    failed_at: float | None = None
    killed_at: float | None = None


class Launcher:
    """The process that forks ranks, begun at once and again by `start` if it was lost. Leaving the context ends it and
    all ranks."""

    def __init__(self, environment: Mapping[str, str], *, log: Path, modules: Sequence[str] = ()) -> None:
        """environment: of the launcher, and of ranks too; modules: what ranks need beyond what all of them do."""
        self.running: dict[int, Running] = {}
        self._environment = dict(environment)
        self._log = log
        self._modules = tuple(modules)
        self._rest = b""
        self._process = self._begin()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> int:
        """The descriptor by which it tells what has happened."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def each(self) -> "Sequence[Launcher]":
        """All processes that launch: this one (see `launchers`)."""
        return [self]

    def _begin(self) -> "subprocess.Popen[bytes]":
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._rest = b""
        self._begun_in = {**self._environment, PARENT: str(os.getpid())}
        with open(self._log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "stages.pretrain.supervision.launcher", *self._modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._begun_in,
                start_new_session=True,
            )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def start(self, group: Group) -> None:
        """Begin the ranks of a group, none of which is running. What they write goes to its log."""
        assert group.number not in self.running, f"group {group.number} is running"
        # With a lost launcher of which `poll` has still to tell, this group ends as the others do.
        if self._process.poll() is not None and not self.running:
            self._close_pipes()
            self._process = self._begin()
        self.running[group.number] = Running(group)
        ranks = [self._changes(self._variables(group, rank, slot)) for rank, slot in enumerate(group.slots)]
        self._say({"start": group.number, "job": str(group.job), "log": str(group.log), "ranks": ranks})

    def _variables(self, group: Group, rank: int, slot: int) -> dict[str, str]:
        """The whole environment of a rank. A world of one has no variables of a world, which Accelerate would make one
        of several of."""
        shared = {name: value for name, value in self._environment.items() if name not in WORLD}
        world = {
            "WORLD_SIZE": str(group.size),
            "LOCAL_WORLD_SIZE": str(group.size),
            "RANK": str(rank),
            "LOCAL_RANK": str(slot),
            RENDEZVOUS: str(group.rendezvous),
        }
        return {**shared, **(world if group.size > 1 else {}), SLOT: str(slot), **group.variables}

    def _changes(self, environment: Mapping[str, str]) -> dict[str, str | None]:
        """What is to be changed in the launcher's environment for a rank to have `environment`; None: removed. A whole
        one for each of many ranks would fill the pipe, and `start` would wait for a launcher that does not read."""
        removed = {name: None for name in self._begun_in if name not in environment}
        return removed | {name: value for name, value in environment.items() if self._begun_in.get(name) != value}

    def kill(self, number: int) -> None:
        """End the ranks of a group; `poll` tells of it when they are gone."""
        running = self.running.get(number)
        if running is not None and running.killed_at is None:
            running.killed_at = time.monotonic()
            self._say({"kill": number})

    def dump(self, number: int) -> None:
        """Let the ranks of a group write down where they are (see `beats`)."""
        self._say({"dump": number})

    def lose(self) -> None:
        """End the launcher itself, which takes all ranks with it: for one that does not answer."""
        self._process.kill()

    def poll(self) -> list[GroupEnd]:
        """The groups that have ended since the last call. A group of which a rank has ended badly is killed here, and
        so is a launcher that does not do so."""
        lost = self._process.poll() is not None
        for message in self._messages():
            running = self.running.get(message["group"])
            if running is None:
                continue
            if "pids" in message:
                running.pids = dict(enumerate(message["pids"]))
            else:
                end = RankEnd(rank=message["rank"], status=message["status"], killed=message["killed"])
                running.ended.append(end)
                if end.status not in (OK, LEFT) and running.failed_at is None:
                    running.failed_at = time.monotonic()
                if -end.status in FROM_OUTSIDE:
                    self.kill(running.group.number)  # nobody else has anything to say about it
        ends = []
        for number, running in list(self.running.items()):
            if lost or len(running.ended) == running.group.size:
                status = self._process.returncode if lost and len(running.ended) < running.group.size else None
                ends.append(GroupEnd(group=running.group, ranks=tuple(running.ended), launcher_status=status))
                del self.running[number]
            elif _since(running.killed_at) > LEAVING_SECONDS:
                self.lose()
            elif _since(running.failed_at) > SETTLE_SECONDS:
                self.kill(number)
        return ends

    def wait(self, seconds: float) -> None:
        """Until the launcher has something to say, so long at most."""
        assert self._process.stdout is not None
        if self._process.poll() is None:
            select.select([self._process.stdout], [], [], seconds)

    def _messages(self) -> list[dict[str, Any]]:
        assert self._process.stdout is not None
        while True:
            try:
                data = os.read(self._process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                break
            if not data:
                break
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it is lost, which `poll` tells of
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def close(self) -> None:
        """End all ranks and the launcher."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_pipes()
        self.running.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _since(moment: float | None) -> float:
    """Seconds since a moment by the monotonic clock; less than none where there was none."""
    return -1.0 if moment is None else time.monotonic() - moment
