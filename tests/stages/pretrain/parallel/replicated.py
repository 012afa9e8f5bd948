"""A training of a few steps in replica groups, for test_redundant: a small network, sharded where a group has several
ranks, and a supervisor that does no more than to start groups, reap them and keep the roster.

Each rank appends a JSON line to lines/<pid>.jsonl for every step that it has completed, and one when it is done.
`alone` makes the same training in the calling process.
"""

import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from data.order.batches import rank_rows
from stages.pretrain.parallel.ranks import Ranks
from stages.pretrain.parallel.redundant import GivenUp, Replicas
from stages.pretrain.parallel.redundant_members import Membership, Roster

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__, "torch._dynamo"])  # which the first step of an optimizer imports
ROWS, STEPS = 13, 24
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Fault:
    """At `point` of `step` (-1: of any), a rank of a group does `kind`: "kill" itself or "cut" its connections to other
    groups. Once, when the group has been started `start` times before."""

    point: str
    step: int
    group: int
    rank: int
    kind: str
    start: int = 0


@dataclass(frozen=True)
class Task:
    """What a rank is told."""

    folder: Path
    group: int
    rank: int
    groups: int
    group_processes: int
    starts: int = 0  # of this group before
    waits_at: tuple[int, ...] = ()  # the steps that are not begun before all groups are there
    faults: tuple[Fault, ...] = ()


def work(task: Task) -> None:
    """One rank, from its start to its end."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    if task.group_processes > 1:
        path = task.folder / f"group-{task.group}.{task.starts}"
        store = FileStore(str(path), task.group_processes)
        dist.init_process_group("gloo", store=store, rank=task.rank, world_size=task.group_processes)
    ranks = Ranks(task.rank, task.group_processes, torch.device("cpu"))
    membership = Membership(task.folder / "redundancy", group=task.group, rank=task.rank)
    step = 0
    done: set[Fault] = set()

    def hook(point: str, at: int, rank: int, value: Any) -> Any:
        for fault in task.faults:
            where = (fault.point, fault.group, fault.rank, fault.start)
            here = (point, task.group, task.rank, task.starts)
            if where == here and fault.step in (step, -1) and fault not in done:
                done.add(fault)
                if fault.kind == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if fault.kind == "cut" and replicas._link is not None:
                    replicas._link.close()
        return value

    has_state = not task.starts
    replicas = Replicas(membership, ranks, has_state=has_state, seconds=60.0, bucket_bytes=400, hook=hook)
    model, optimizer = _made(task)
    tensors = _state(model, optimizer)
    if not has_state:
        for tensor in tensors:
            tensor.fill_(torch.nan)
    completed, seen = 0, ""
    lines = (task.folder / "lines" / f"{os.getpid()}.jsonl").open("a", buffering=1)
    completed, seen = replicas.join(step=completed, text=seen, tensors=tensors)
    while completed < STEPS:
        step = completed + 1
        while step in task.waits_at and replicas.size < task.groups * task.group_processes:
            if membership.newest().epoch > replicas.members.epoch:
                completed, seen = replicas.join(step=completed, text=seen, tensors=tensors)
                lines.write(json.dumps({"joined": completed, "time": time.monotonic()}) + "\n")
            time.sleep(POLL_SECONDS)
        try:
            loss = _step(step, model, optimizer, replicas, ranks, hook)
        except GivenUp:
            optimizer.zero_grad()
            completed, seen = replicas.join(step=completed, text=seen, tensors=tensors)
            continue
        completed, seen = step, f"{seen}{step} "
        line = {"step": step, "group": task.group, "rank": task.rank, "loss": loss, "size": replicas.size}
        lines.write(json.dumps({**line, "time": time.monotonic(), "writes": replicas.writes}) + "\n")
        if replicas.moves:
            completed, seen = replicas.join(step=completed, text=seen, tensors=tensors)
            lines.write(json.dumps({"joined": step, "time": time.monotonic()}) + "\n")
    digest = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()
    lines.write(json.dumps({"done": digest, "group": task.group, "rank": task.rank, "seen": seen}) + "\n")
    os._exit(0)


def _made(task: Task) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(7, 11), torch.nn.Tanh(), torch.nn.Linear(11, 5))
    if task.group_processes > 1:
        mesh = init_device_mesh("cpu", (task.group_processes,))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for parameter in model.parameters():  # its state is there from the start
        parameter.grad = torch.zeros_like(parameter)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    for state in optimizer.state.values():
        state["step"].zero_()
    optimizer.param_groups[0]["lr"] = 1e-2
    optimizer.zero_grad()
    return model, optimizer


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    found = [_local(parameter.detach()) for parameter in model.parameters()]
    for parameter in model.parameters():
        found += [_local(value) for value in optimizer.state[parameter].values()]
    return found


def _batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, 7, generator=random), torch.randn(ROWS, 5, generator=random)


def _step(
    step: int,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    replicas: Replicas,
    ranks: Ranks,
    hook: Any,
) -> float:
    inputs, targets = _batch(step)
    rows = rank_rows(ROWS, replicas.rank, replicas.size)
    hook("forward", step, ranks.rank, None)
    loss = (model(inputs[rows]) - targets[rows]).square().sum()
    (loss * (ranks.size / ROWS)).backward()
    sums = ranks.sum(loss.detach().double()[None])
    hook("sum", step, ranks.rank, None)
    sums = replicas.sum((_local(p.grad) for p in model.parameters() if p.grad is not None), sums)
    hook("update", step, ranks.rank, None)
    optimizer.step()
    optimizer.zero_grad()
    hook("end", step, ranks.rank, None)
    return sums.item() / ROWS


def alone() -> list[float]:
    """The loss of each step on one process."""
    model, optimizer = _made(Task(Path(), group=0, rank=0, groups=1, group_processes=1))
    losses = []
    for step in range(1, STEPS + 1):
        inputs, targets = _batch(step)
        loss = (model(inputs) - targets).square().sum() / ROWS
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@dataclass
class Supervisor:
    """Starts the groups, and each that is lost again, until all have ended well. `lost`: groups in the order of their
    loss, with the time at which that was seen. `pids`: all that a group has had, in their order."""

    folder: Path
    groups: int
    group_processes: int
    faults: Sequence[Fault] = ()
    waits_at: tuple[int, ...] = ()
    lost: list[tuple[int, float]] = field(default_factory=list)
    pids: dict[int, list[int]] = field(default_factory=dict)

    def run(self) -> list[dict[str, Any]]:
        """All lines, each with the pid of its process."""
        (self.folder / "lines").mkdir()
        roster = Roster(self.folder / "redundancy", num_groups=self.groups, group_processes=self.group_processes)
        starts = dict.fromkeys(range(self.groups), 0)
        running = {group: self._start(group, 0) for group in starts}
        until = time.monotonic() + 120
        try:
            while running:
                assert time.monotonic() < until, "the groups have not ended"
                for group, processes in list(running.items()):
                    codes = [process.exitcode for process in processes]
                    if any(codes):
                        for process in processes:
                            process.kill()
                            process.join()
                        self.lost.append((group, time.monotonic()))
                        roster.lost(group)
                        assert roster.members.groups, "no group is left"
                        starts[group] += 1
                        assert starts[group] < 6, f"group {group} is lost again and again"
                        roster.joins(group)
                        running[group] = self._start(group, starts[group])
                    elif all(code == 0 for code in codes):
                        del running[group]
                roster.poll()
                time.sleep(POLL_SECONDS)
        finally:
            for processes in running.values():
                for process in processes:
                    process.kill()
                    process.join()
        return [
            {"pid": int(path.stem), **json.loads(line)}
            for path in (self.folder / "lines").iterdir()
            for line in path.read_text().splitlines()
        ]

    def _start(self, group: int, starts: int) -> list[BaseProcess]:
        processes: list[BaseProcess] = []
        for rank in range(self.group_processes):
            shape = (self.groups, self.group_processes, starts)
            task = Task(self.folder, group, rank, *shape, self.waits_at, tuple(self.faults))
            processes.append(CONTEXT.Process(target=work, args=(task,), daemon=True))
            processes[-1].start()
            self.pids.setdefault(group, []).append(processes[-1].pid or 0)
        return processes
