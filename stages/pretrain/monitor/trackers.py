"""The numbers of each step for TensorBoard, or for any other tracker that Accelerate knows by name.

The records stay the truth. A tracker has a thread of its own, so that a slow one delays nothing; one that fails is told
of once and left alone. No step is shown twice after a resume: TensorBoard is told from which step on its earlier values
are void, and every other tracker gets no step that it has got before.
"""

import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from data.errors import InputError

PROJECT = "longhaul"
MOST_WAITING = 1000  # steps that a slow tracker may lag behind before it misses some
CLOSE_SECONDS = 10.0
POLL_SECONDS = 0.05
PURGES = ("tensorboard",)  # that drop by themselves what a resumed training makes again


class Trackers:
    """All trackers of one training. Used by the main rank; with no name it does nothing."""

    def __init__(self, names: Sequence[str], folder: Path, *, resumed_step: int, settings: Mapping[str, Any]) -> None:
        """folder: for what they leave on this machine. resumed_step: the steps up to it have been made before.
        settings: the training's, as JSON values. Raises InputError for a name that Accelerate does not know or whose
        package is not installed."""
        self._trackers = [
            Tracker(name, _opener(name, folder, resumed_step, settings), sent=folder / f"{name}.step")
            for name in dict.fromkeys(names)
        ]

    def step(self, step: int, lines: Iterable[Mapping[str, Any]]) -> list[str]:
        """Send what the lines of a step hold. Returns what there is to tell of trackers that fail."""
        if not self._trackers:
            return []
        values = {name: value for line in lines for name, value in scalars(line).items() if name != "step"}
        for tracker in self._trackers:
            tracker.send(step, values)
        return [warning for tracker in self._trackers for warning in tracker.warnings()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for tracker in self._trackers:
            tracker.close()
            for warning in tracker.warnings():  # no step follows that could tell of it
                print(warning, file=sys.stderr)


class Tracker:
    """One, and its thread. `start` opens it; sent: the file that says up to which step it has got everything, where it
    must not get a step twice."""

    def __init__(self, name: str, start: Callable[[], Any], *, sent: Path) -> None:
        self._name = name
        self._sent = sent
        self._steps: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(MOST_WAITING)
        self._warnings: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._misses = False
        self._thread = threading.Thread(target=self._work, args=(start,), name=f"tracker {name}", daemon=True)
        self._thread.start()

    def send(self, step: int, values: dict[str, float]) -> None:
        """Hand a step over; it is missed if the tracker lags too far behind."""
        if not self._thread.is_alive():
            return
        try:
            self._steps.put_nowait((step, values))
        except queue.Full:
            if not self._misses:
                self._misses = True
                self._warnings.put(f"the tracker {self._name} is too slow and misses steps, the first at step {step}")

    def warnings(self) -> list[str]:
        """What there is to tell that has not been told."""
        told = []
        while not self._warnings.empty():
            told.append(self._warnings.get())
        return told

    def close(self) -> None:
        """Let it finish what it has been given, for a while."""
        ends = time.monotonic() + CLOSE_SECONDS
        while self._thread.is_alive() and time.monotonic() < ends:
            try:
                self._steps.put_nowait(None)
                break
            except queue.Full:
                time.sleep(POLL_SECONDS)
        self._thread.join(max(0.0, ends - time.monotonic()))
        if self._thread.is_alive():
            self._warnings.put(f"the tracker {self._name} had not got all steps when the training ended")

    def _work(self, start: Callable[[], Any]) -> None:
        try:
            tracker = start()
            latest = self._read_sent()
            while (item := self._steps.get()) is not None:
                step, values = item
                if step > latest:
                    tracker.log(values, step=step)
                    self._write_sent(step)
            tracker.finish()
        except Exception as error:  # whatever a tracker does, the training goes on without it
            self._warnings.put(f"the tracker {self._name} failed and gets no more steps: {error!r}")

    def _read_sent(self) -> int:
        return int(self._sent.read_text()) if self._sent.exists() else 0

    def _write_sent(self, step: int) -> None:
        if self._name in PURGES:
            return
        # One write of one length, so that a kill leaves a whole number behind; os.replace would cost ten times as much.
        descriptor = os.open(self._sent, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(descriptor, f"{step:020d}".encode())
        os.close(descriptor)


def _opener(name: str, folder: Path, resumed_step: int, settings: Mapping[str, Any]) -> Callable[[], Any]:
    """What opens the tracker `name`. Raises InputError."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    if name not in LOGGER_TYPE_TO_CLASS:
        known = ", ".join(sorted(map(str, LOGGER_TYPE_TO_CLASS)))
        raise InputError(f"pretrain.trackers: Accelerate knows no tracker {name!r}, only {known}")
    kind = LOGGER_TYPE_TO_CLASS[name]
    _require_package(name)
    folder.mkdir(parents=True, exist_ok=True)
    arguments: dict[str, Any] = {"logging_dir": str(folder)} if kind.requires_logging_directory else {}
    if name in PURGES:
        arguments["purge_step"] = resumed_step + 1
    if name == "wandb":
        arguments |= {"id": folder.parent.name, "resume": "allow"}

    def open_tracker() -> Any:
        tracker = kind(PROJECT, **arguments)
        tracker.start()
        if not resumed_step:
            tracker.store_init_configuration(
                {key: value if isinstance(value, str | int | float) else str(value) for key, value in _flat(settings)}
            )
        return tracker

    return open_tracker


def _require_package(name: str) -> None:
    from accelerate.tracking import get_available_trackers
    from accelerate.utils import LoggerType

    own = {str(kind.value) for kind in LoggerType}
    if name in own and name not in {str(kind.value) for kind in get_available_trackers()}:
        raise InputError(f"pretrain.trackers: the package of {name!r} is not installed: pip install {name}")


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers in a line, those within it by path: {"gradient_norms/attention": 0.5}; of a list by place,
    counted from 0."""
    return {
        name: float(value)
        for name, value in _flat(line)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, list | tuple):
            value = {str(place): part for place, part in enumerate(value)}
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value
