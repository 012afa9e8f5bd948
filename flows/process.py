"""A stage as a child process in a session of its own: its journal arrives line by line, it is stopped where it stalls
or takes too long, and nothing survives its parent."""

import asyncio
import ctypes
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.sigterm import noting_sigterm
from stages import kernel
from stages.errors import BAD_INPUT, FAILED, TRY_AGAIN

GRACE_SECONDS = 10.0  # a stage may be killed at any moment; this much it has for leaving in good order
DRAIN_SECONDS = 5.0
SETTLE_SECONDS = 1.0
TAIL_LINES, MOST_LINE_BYTES = 40, 4000  # of standard error, which goes into the message of a failure
MOST_REST_BYTES = 1 << 20  # of a line that does not end: a progress bar of a library is one
SHOWN_CHARACTERS = 300
STDOUT, STDERR = 1, 2
PR_SET_PDEATHSIG = 1
ERROR = "error: "  # how a stage's command line begins what it says about a failure
NEVER = float("inf")
libc = ctypes.CDLL(None)


class StageFailed(RuntimeError):
    """A stage's process ended with a code other than 0. `exit_code` is negative for a signal, as in subprocess.
    `summary` is what the stage itself said last, without the traceback before it, which its text has too."""

    def __init__(self, stage: str, exit_code: int, tail: str, *, how: str = "") -> None:
        if not how:
            how = f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
        before, marker, said = f"\n{tail}".rpartition(f"\n{ERROR}")
        if not marker:
            before, _, said = tail.rpartition("\n")
        more = f"\n\nThe last lines before that:\n{before.strip()}" if before.strip() else ""
        self.exit_code = exit_code
        self.summary = f"{stage} failed ({how})" + (f": {said}" if said else "")
        super().__init__(self.summary + more)


class OutOfMemory(StageFailed):
    """The kernel has killed a stage for want of memory."""


class StageStalled(StageFailed):
    """A stage was stopped, since its journal had no line for long."""


class StageOverdue(StageFailed):
    """A stage was stopped, since it took longer than it may."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """In seconds. stall: longest time between two lines of the journal; deadline: of the process; grace: that it has to
    leave when it is asked to. lower: what a user can do about a stage that runs out of memory."""

    stall: float = NEVER
    deadline: float = NEVER
    grace: float = GRACE_SECONDS
    lower: str = ""


class _Child(asyncio.SubprocessProtocol):
    """What has come from a stage. heard_at: when its last line did. exited: when the process ends; drained: when nobody
    holds its pipes any more; failed: what a listener raised."""

    def __init__(self, on_event: Callable[[dict[str, Any]], None], clock: Callable[[], float]) -> None:
        loop = asyncio.get_running_loop()
        self.exited, self.drained, self.failed = loop.create_future(), loop.create_future(), loop.create_future()
        self.heard_at = clock()
        self.last = ""
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._on_event, self._clock = on_event, clock
        self._rest = {STDOUT: b"", STDERR: b""}

    @property
    def tail(self) -> str:
        return "\n".join(self._tail)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, rest = (self._rest[fd] + data).split(b"\n")
        self._rest[fd] = rest if fd == STDOUT else rest[-MOST_REST_BYTES:]
        for line in lines:
            self._take(fd, line)

    def _take(self, fd: int, line: bytes) -> None:
        if fd == STDERR:
            shown = line.rstrip().rpartition(b"\r")[2][:MOST_LINE_BYTES]
            self._tail.append(shown.decode("utf-8", "replace"))
            return
        self.heard_at = self._clock()
        self.last = line[:SHOWN_CHARACTERS].decode("utf-8", "replace").rstrip()
        if self.failed.done():
            return
        try:
            self._on_event(json.loads(line))
        except Exception as error:
            self.failed.set_exception(error)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if (rest := self._rest.pop(fd, b"")) and fd == STDERR:  # of standard output, a line that a kill tore
            self._take(fd, rest)
        if not self._rest and not self.drained.done():
            self.drained.set_result(None)

    def process_exited(self) -> None:
        self.exited.set_result(None)


async def run_stage_process(
    stage: str,
    arguments: Sequence[str],
    on_event: Callable[[dict[str, Any]], None],
    *,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
) -> None:
    """Run `python -m stages.STAGE ARGUMENTS --events` as `run_process` does."""
    command = [sys.executable, "-m", f"stages.{stage}", *arguments, "--events", "--outlives-parent", str(limits.grace)]
    await run_process(stage, command, on_event, limits=limits)


async def run_process(
    stage: str,
    command: Sequence[str],
    on_event: Callable[[dict[str, Any]], None],
    *,
    limits: Limits = Limits(),  # noqa: B008
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run a command whose standard output is a journal, and hand every event to `on_event`. If this coroutine is
    cancelled, if SIGTERM comes or a limit is reached, its process group is asked to leave by SIGTERM, and killed after
    `limits.grace`.

    Raises StageFailed with the last lines of its standard error; OutOfMemory; StageStalled; StageOverdue; what
    `on_event` raises; and for SIGTERM what its handler raises, when the process is gone.
    """
    kills = kernel.oom_kills()
    with noting_sigterm() as terminated:
        transport, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Child(on_event, clock),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent(),
            cwd=Path.cwd(),
        )
        try:
            stopped = await _watch(stage, child, terminated, limits, clock)
        finally:
            try:
                await _bring_down(transport.get_pid(), child, limits.grace)
                await asyncio.wait([child.drained], timeout=DRAIN_SECONDS)  # a stranger may hold the pipes
            finally:
                transport.close()
        if stopped is not None:
            raise stopped
        if child.failed.done():
            child.failed.result()
    exit_code = transport.get_returncode()
    assert exit_code is not None
    if exit_code == -signal.SIGKILL and kernel.oom_kills_since(kills):
        how = "killed by the kernel, which had no memory left"
        raise OutOfMemory(stage, BAD_INPUT, f"{child.tail}\n{ERROR}{limits.lower}".strip(), how=how)
    if exit_code != 0:
        raise StageFailed(stage, exit_code, child.tail)


async def _watch(
    stage: str, child: _Child, terminated: asyncio.Event, limits: Limits, clock: Callable[[], float]
) -> StageFailed | None:
    """Until the process ends by itself, or is to be stopped; why, for a limit that it has reached."""
    began, settled = clock(), False
    asked = asyncio.create_task(terminated.wait())
    try:
        while True:
            left = min(child.heard_at + limits.stall, began + limits.deadline) - clock()
            timeout = None if left == NEVER else max(left, 0)
            waiting = {child.exited, child.failed, asked}
            if (await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED))[0]:
                return None
            now = clock()
            if now - began >= limits.deadline:
                return _overdue(stage, child, limits)
            if now - child.heard_at < limits.stall:
                settled = False
            elif settled:
                return _stalled(stage, child, limits)
            else:  # this process may have been the one that slept, and the lines are in the pipe
                settled = True
                await asyncio.sleep(min(SETTLE_SECONDS, limits.stall))
    finally:
        asked.cancel()


def _stalled(stage: str, child: _Child, limits: Limits) -> StageStalled:
    how = f"stopped: no line in its journal for {_minutes(limits.stall)}"
    said = f"the last line was {child.last or 'none'}"
    advice = f"{ERROR}{said}. If {stage} may be silent for longer, raise run.stall_minutes"
    return StageStalled(stage, TRY_AGAIN, f"{child.tail}\n{advice}".strip(), how=how)


def _overdue(stage: str, child: _Child, limits: Limits) -> StageOverdue:
    how = f"stopped: it has run for {_minutes(limits.deadline)}"
    said = f"the last line was {child.last or 'none'}"
    advice = f"{ERROR}{said}. What it has finished is kept; raise run.deadline_hours, or set it to 0"
    return StageOverdue(stage, FAILED, f"{child.tail}\n{advice}".strip(), how=how)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 60 else f"{seconds:g} s"


async def _bring_down(pid: int, child: _Child, grace_seconds: float) -> None:
    """End the whole process group; its leader is asked first, since it knows how to leave."""
    try:
        if not child.exited.done():
            _signal_group(pid, signal.SIGTERM)
            await asyncio.wait([child.exited], timeout=grace_seconds)
    finally:
        _signal_group(pid, signal.SIGKILL)
    await asyncio.wait([child.exited])


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # all of it may have ended already
        os.killpg(group, number)


def die_with_parent() -> Callable[[], None]:
    """For `preexec_fn`: the child gets SIGTERM when this process ends, however it ends; or the thread that starts it,
    so that has to be the main one."""
    parent = os.getpid()

    def arm() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)  # it ended before the line above took effect

    return arm
