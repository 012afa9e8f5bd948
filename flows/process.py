"""A stage as a child process in a session of its own: its journal arrives line by line, and nothing survives its
parent."""

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

GRACE_SECONDS = 30.0
LINE_LIMIT_BYTES = 1 << 24
TAIL_LINES = 40
PR_SET_PDEATHSIG = 1
ERROR = "error: "  # how a stage's command line begins what it says about a failure
libc = ctypes.CDLL(None)


class StageFailed(RuntimeError):
    """A stage's process ended with a code other than 0. `exit_code` is negative for a signal, as in subprocess.
    `summary` is what the stage itself said last, without the traceback before it."""

    def __init__(self, stage: str, exit_code: int, tail: str) -> None:
        how = f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
        super().__init__(f"{stage} failed ({how})" + (f":\n{tail}" if tail else ""))
        self.exit_code = exit_code
        _, marker, said = f"\n{tail}".rpartition(f"\n{ERROR}")
        self.summary = f"{stage} failed ({how}): " + (said if marker else tail.rpartition("\n")[2])


async def run_stage_process(
    stage: str,
    arguments: Sequence[str],
    on_event: Callable[[dict[str, Any]], None],
    *,
    grace_seconds: float = GRACE_SECONDS,
) -> None:
    """Run `python -m stages.STAGE ARGUMENTS --events` and hand every event to `on_event`. Raises StageFailed with the
    last lines of its standard error. If this coroutine is cancelled, so is the process: SIGTERM, and SIGKILL for what
    is left after `grace_seconds`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"stages.{stage}",
        *arguments,
        "--events",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT_BYTES,
        start_new_session=True,
        preexec_fn=die_with_parent(),
        cwd=Path.cwd(),
    )
    try:
        tail, _ = await asyncio.gather(_tail(process), _events(process, on_event))
        exit_code = await process.wait()
    finally:
        await _bring_down(process, grace_seconds)
    if exit_code != 0:
        raise StageFailed(stage, exit_code, tail)


async def _events(process: asyncio.subprocess.Process, on_event: Callable[[dict[str, Any]], None]) -> None:
    assert process.stdout
    async for line in process.stdout:
        on_event(json.loads(line))


async def _tail(process: asyncio.subprocess.Process) -> str:
    assert process.stderr
    lines: deque[str] = deque(maxlen=TAIL_LINES)
    async for line in process.stderr:
        lines.append(line.decode("utf-8", "replace").rstrip())
    return "\n".join(lines)


async def _bring_down(process: asyncio.subprocess.Process, grace_seconds: float) -> None:
    """End the whole process group; its leader is asked first, since it knows how to leave."""
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace_seconds)
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # all of it may have ended already
        os.killpg(group, number)


def die_with_parent() -> Callable[[], None]:
    """For `preexec_fn`: the child gets SIGTERM when this process ends, however it ends."""
    parent = os.getpid()

    def arm() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)  # it ended before the line above took effect

    return arm
