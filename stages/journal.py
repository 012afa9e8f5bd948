"""The append-only journal of a stage: events.jsonl, one JSON object a line. It is a stage's only channel outward.

A line is written with one write() call, so that lines of one process never mix. A reader skips a line that a kill
tore, and the next attempt starts on a fresh line.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

Event = dict[str, Any]
Listener = Callable[[Event], None]

PROGRESS_INTERVAL_SECONDS = 0.25


# Made once: json.dumps makes one for each call.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def line_of(event: Event) -> bytes:
    """An event as a line of a journal."""
    return _encode(event).encode("utf-8", "backslashreplace") + b"\n"


class LineWriter:
    """A listener that writes each event as a line into a stream. A journal hands it the lines as they are in its file,
    so that an event becomes JSON once. is_needed: if not, the work goes on when nobody reads any more."""

    def __init__(self, stream: BinaryIO, *, is_needed: bool = True) -> None:
        self._stream = stream
        self._is_needed = is_needed
        self._is_read = True
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        self.write(line_of(event))

    def write(self, line: bytes) -> None:
        with self._lock:
            if not self._is_read:
                return
            try:
                self._stream.write(line)
                self._stream.flush()
            except BrokenPipeError:
                if self._is_needed:
                    raise
                self._is_read = False


class Journal:
    """Appends events to a file and hands each to the listeners, which belong to the caller (a progress bar, a pipe)."""

    def __init__(
        self, path: Path, *, stage: str, listeners: tuple[Listener, ...] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self.stage = stage
        self.lines = 0  # that this object has written
        self._listeners = listeners
        self._clock = clock
        self._lock = threading.Lock()
        self._progress_at: dict[str, float] = {}
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if torn(path):
            os.write(self._descriptor, b"\n")

    def event(self, kind: str, **fields: Any) -> None:
        """Append one event. `fields` are JSON; a value that is not raises TypeError here, not at the reader."""
        event = {"time": round(self._clock(), 3), "stage": self.stage, "kind": kind, **fields}
        line = line_of(event)
        with self._lock:
            os.write(self._descriptor, line)
            self.lines += 1
        for listener in self._listeners:
            if isinstance(listener, LineWriter):
                listener.write(line)
            else:
                listener(event)

    def progress(self, name: str, done: int, total: int, unit: str = "documents", text: str = "") -> None:
        """How far a long step is, with a few words beside the bar. Cheap to call: at most four a second are written,
        and always the last one."""
        now = self._clock()
        if done < total and now - self._progress_at.get(name, -1e9) < PROGRESS_INTERVAL_SECONDS:
            return
        self._progress_at[name] = now
        self.event("progress", name=name, done=done, total=total, unit=unit, text=text)

    def warning(self, text: str) -> None:
        """Something a user should know although the work goes on."""
        self.event("warning", text=text)

    def close(self) -> None:
        os.close(self._descriptor)


def torn(path: Path) -> bool:
    """Whether the file's last line was cut off by a kill."""
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def read_events(path: Path) -> Iterator[Event]:
    """The whole events of a journal, in order; a torn line is passed over."""
    with open(path, "rb") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
