"""Work that takes long, one piece after the other, in a thread of its own that nobody waits for at the exit."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Background:
    """A thread that does what it is given, in order; see `submit`."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """The future result of `work`, whatever it raises included."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._work.put(run)
        return future

    def _run(self) -> None:
        while True:
            self._work.get()()
