"""Records of a training whose writer may be lost: another rank goes on with them, and no line is missing or twice.

The first rank of every group keeps the lines of its latest steps. No group gets further than one step before the
others, so these are enough to make good what the lost writer had no time to write.
"""

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from io import BufferedWriter
from pathlib import Path
from types import TracebackType
from typing import Any

from stages.pretrain.job import RunDirectory
from stages.pretrain.monitor.records import Records
from stages.pretrain.monitor.trackers import Trackers

KEPT_STEPS = 8


class SharedRecords(Records):
    """Those of the first rank of a group; they write nothing before `lead`."""

    def __init__(self, run: RunDirectory, *, trackers: Callable[[int], Trackers]) -> None:
        """trackers: opens them, given the last step that they have been told of."""
        super().__init__(run, writes=False)
        self._run = run
        self._open_trackers = trackers
        self._kept: deque[tuple[dict[str, Any], dict[str, Any]]] = deque(maxlen=KEPT_STEPS)
        self._written = [0, 0]
        self._opened = ExitStack()

    def lead(self, step: int) -> None:
        """Write from here on. step: the last that this rank has completed; nobody else is writing. What the writer
        before has written of a step beyond it stays, and is not written again."""
        if self._files:
            return
        self._trackers = self._opened.enter_context(self._open_trackers(step))
        self._peak_memory = self._run.peak_memory
        for place, path in enumerate((self._run.metrics, self._run.timing)):
            self._written[place] = _whole_lines(path)
            self._files.append(path.open("ab"))
        for lines in [kept for kept in self._kept if kept[0]["step"] <= step]:
            for place, file in enumerate(self._files):
                self._append(place, file, lines[place])

    def step(self, metrics: dict[str, Any], timing: dict[str, Any]) -> None:
        self._kept.append((metrics, timing))
        super().step(metrics, timing)

    def _append(self, place: int, file: BufferedWriter, values: dict[str, Any]) -> None:
        if values["step"] <= self._written[place]:
            return
        assert values["step"] == self._written[place] + 1, f"step {values['step']} follows {self._written[place]}"
        super()._append(place, file, values)
        self._written[place] += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, traceback)
        super().__exit__(kind, error, traceback)


def _whole_lines(path: Path) -> int:
    """How many lines a file has, once what a kill has cut off at its end is removed."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return whole.count(b"\n")
