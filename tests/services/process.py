"""What services of this machine have in common: a port of loopback, and an end that comes with that of the process that
started them."""

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flows.process import PR_SET_PDEATHSIG, libc

LIFE_SECONDS = 1800  # it ends by itself after that


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(
    command: Sequence[str | Path],
    ready: Callable[[], bool],
    *,
    log: Path,
    stop: signal.Signals,
    seconds: float,
    **more: Any,
) -> Iterator[None]:
    """A block in which `command` runs and is `ready`; `stop` is the signal at which it ends at once. Raises
    RuntimeError with the end of its output if it is not ready after so many seconds."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            ["timeout", f"--signal={stop.name.removeprefix('SIG')}", str(LIFE_SECONDS), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, stop),  # `timeout` passes it on
            **more,
        )
    try:
        until = time.monotonic() + seconds
        while not ready():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(stop)
        process.wait()
