"""SIGTERM while stages run: noted, and acted upon when their processes are gone.

Prefect's handler raises wherever the main thread is. In a callback of the event loop that exception would be lost, and
with it the order to stop; in one task of several, the others would not learn of it. Prefect tells a cancellation from a
crash only while the handler is the one that it knows as its own, so ours takes that place too.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Wake = Callable[[], None]
PREFECTS = "_prefect_sigterm_handler"


class _Noting:
    """The handler while at least one stage runs, and the one that it stands in for."""

    def __init__(self) -> None:
        self.wakes: list[Wake] = []
        self.before: Any = signal.SIG_DFL
        self._handler = self._note  # one object: it is looked for by identity

    def enter(self, wake: Wake) -> None:
        if not self.wakes:
            self.before = signal.signal(signal.SIGTERM, self._handler)
            _rename_prefects(self.before, self._handler)
        self.wakes.append(wake)

    def leave(self, wake: Wake) -> None:
        self.wakes.remove(wake)
        if not self.wakes:
            signal.signal(signal.SIGTERM, self.before)
            _rename_prefects(self._handler, self.before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        for wake in self.wakes:
            wake()

    def act(self) -> None:
        """What the signal does where no stage runs."""
        if callable(self.before):
            self.before(signal.SIGTERM, None)
        elif self.before != signal.SIG_IGN:
            raise SystemExit(128 + signal.SIGTERM)


def _rename_prefects(before: Any, after: Any) -> None:
    """What Prefect 3.9 knows as its own handler, if that is `before`, is `after` from here on."""
    module = sys.modules.get("prefect.utilities.engine")
    if module is not None and getattr(module, PREFECTS, None) is before:
        setattr(module, PREFECTS, after)


_noting = _Noting()


@contextmanager
def noting_sigterm() -> Iterator[asyncio.Event]:
    """An event that SIGTERM sets. The block has to end soon then, and what the signal's own handler raises is raised
    behind it. Outside the main thread, where no signal is handled, nothing sets it."""
    noted, came = asyncio.Event(), False
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    loop = asyncio.get_running_loop()

    def wake() -> None:
        nonlocal came
        came = True  # the loop may have no turn before the block ends
        loop.call_soon_threadsafe(noted.set)

    _noting.enter(wake)
    try:
        yield noted
    finally:
        _noting.leave(wake)
        if came:
            _noting.act()
