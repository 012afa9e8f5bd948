"""The append-only journal of a stage: events.jsonl, one JSON object a line. It is a stage's only channel outward.

A line is written with one write() call, so that lines of one process never mix. A reader skips a line that a kill
tore, and the next attempt starts on a fresh line.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic_core import to_json

Event = dict[str, Any]
Listener = Callable[[Event], None]

PROGRESS_INTERVAL_SECONDS = 0.25
# What needs no look inside.
PLAIN = frozenset({str, int, bool, type(None)})


def line_of(event: Event) -> bytes:
    """An event as a line of a journal. Raises TypeError for a value that is no JSON, ValueError for a number that is
    not finite.

    Nearly all lines hold numbers and short texts alone: for those pydantic's encoder, which is less strict, takes less
    than half the time of Python's.
    """
    for value in event.values():
        kind = type(value)
        if kind is float:
            if not isfinite(value):
                return _strict(event)
        elif kind not in PLAIN:
            return _strict(event)
    try:
        return to_json(event) + b"\n"
    except ValueError:  # half a character
        return _strict(event)


def _strict(event: Event) -> bytes:
    text = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _write(descriptor: int, line: bytes) -> None:
    """In one call, unless the system takes a part only: of a disk that is full, the next call says so."""
    written = os.write(descriptor, line)
    while written < len(line):
        written += os.write(descriptor, line[written:])


class LineWriter:
    """A listener that writes each event as a line into a pipe or file, by its descriptor. A journal hands it the lines
    as they are in its file, so that an event becomes JSON once. is_needed: if not, the work goes on when nobody reads
    any more."""

    def __init__(self, descriptor: int, *, is_needed: bool = True) -> None:
        self._descriptor = descriptor
        self._is_needed = is_needed
        self._is_read = True
        self._lock = threading.Lock()  # a pipe may take a long line in parts

    def __call__(self, event: Event) -> None:
        self.write(line_of(event))

    def write(self, line: bytes) -> None:
        with self._lock:
            if not self._is_read:
                return
            try:
                _write(self._descriptor, line)
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
        self.last: Event | None = None  # that this object has written
        self._listeners = listeners
        self._clock = clock
        self._progress_at: dict[str, float] = {}
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if torn(path):
            _write(self._descriptor, b"\n")

    def event(self, kind: str, **fields: Any) -> None:
        """Append one event. `fields` are JSON; a value that is not raises TypeError or ValueError here, not at the
        reader."""
        event = {"time": int(1000 * self._clock() + 0.5) / 1000, "stage": self.stage, "kind": kind, **fields}
        line = line_of(event)
        _write(self._descriptor, line)
        self.last = event
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
        yield from parsed(file)


def parsed(lines: Iterable[bytes]) -> Iterator[Event]:
    """What stands in lines of a journal, without those that a kill tore."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
