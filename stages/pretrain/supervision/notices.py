"""Notices that the run has to stop, and how ranks are asked to leave.

A batch system or an operator sends SIGTERM, SIGINT or SIGUSR1, to the supervisor alone or to all processes. The ranks
ignore it; the supervisor writes request.json into the run directory, for which the main rank looks at each step. All
ranks learn of it with the loss, take a last checkpoint and leave with exit code 76.
"""

import os
import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from stages.files import write_json
from stages.lease import LOST

NOTICES = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Left(Exception):
    """The ranks leave on request after the checkpoint of `step`."""

    def __init__(self, step: int) -> None:
        super().__init__(f"left on request after step {step}")
        self.step = step


class Requests:
    """What the supervisor asks of the ranks; `path`: of request.json."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def leave_wanted(self) -> bool:
        """Whether the ranks are to take a last checkpoint and leave. Microseconds, on a local file system."""
        return os.path.exists(self._path)  # noqa: PTH110

    def ask_to_leave(self, why: str) -> None:
        if not self._path.exists():
            write_json(self._path, {"leave": why})

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


class Notices:
    """Within the context a notice is noted in `received`. Only a second SIGINT, of an operator who will not wait, does
    at once what it did before: batch systems send one notice after another, and the grace time bounds them all.
    A process that has lost its lease to another one does not go on for a moment. Outside the main thread nothing is
    noted: signals are not delivered there."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # What a script runs in the background is not meant by Ctrl-C.
            heard = [n for n in NOTICES if n != signal.SIGINT or signal.getsignal(n) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None and not LOST.is_set():
            self.received = signal.Signals(number)
        elif number == signal.SIGINT or LOST.is_set():
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()
