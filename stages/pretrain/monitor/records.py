"""metrics.jsonl and timing.jsonl: one line a step, however often the run was killed; and the peak of the memory."""

import json
import os
import time
from io import BufferedWriter
from types import TracebackType
from typing import Any

from stages.files import write_atomic, write_json
from stages.pretrain.job import RunDirectory, read_lines
from stages.pretrain.monitor.trackers import Trackers


class Records:
    """Appends a line to both files after each step, and sends both to the trackers. Only the main rank writes; any
    other gets an object that does nothing."""

    def __init__(self, run: RunDirectory, *, writes: bool, trackers: Trackers | None = None) -> None:
        self._trackers = trackers if writes else None
        self._seconds = 0.0
        self._peak_memory = run.peak_memory if writes else None
        self._files = [path.open("ab") for path in (run.metrics, run.timing)] if writes else []

    def step(self, metrics: dict[str, Any], timing: dict[str, Any]) -> None:
        """One step's lines; each reaches the file as one write. What trackers have to tell becomes a warning of the
        timing line, and the CPU time that the lines before it took here a part of its monitor_seconds."""
        began = time.thread_time()
        warnings = self._trackers.step(metrics["step"], (metrics, timing)) if self._trackers else []
        if warnings:
            timing = {**timing, "warnings": [*timing.get("warnings", ()), *warnings]}
        if "monitor_seconds" in timing:
            timing = {**timing, "monitor_seconds": round(timing["monitor_seconds"] + self._seconds, 6)}
            self._seconds = 0.0
        for place, (file, values) in enumerate(zip(self._files, (metrics, timing), strict=False)):
            self._append(place, file, values)
        self._seconds += time.thread_time() - began

    def _append(self, place: int, file: BufferedWriter, values: dict[str, Any]) -> None:
        """One line of the first or the second file."""
        file.write(json.dumps(values, allow_nan=False).encode() + b"\n")
        file.flush()

    def peak_memory(self, num_bytes: int) -> int:
        """Put down what all processes of this attempt have held so far. Returns the highest of all attempts."""
        if self._peak_memory is None:
            return num_bytes
        before = json.loads(self._peak_memory.read_bytes())["bytes"] if self._peak_memory.exists() else 0
        if num_bytes > before:
            write_json(self._peak_memory, {"bytes": num_bytes})
        return max(num_bytes, before)

    def vouch(self, peak_bytes: int) -> None:
        """Bring the lines to the disk, and the peak of the memory: before a checkpoint that vouches for them. Another
        thread may be writing lines, which the checkpoint knows nothing of."""
        for file in self._files:
            os.fsync(file.fileno())
        self.peak_memory(peak_bytes)

    def __enter__(self) -> "Records":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


def cut_back(run: RunDirectory, step: int) -> None:
    """Drop the lines of steps after `step`: they will be made again. Raises RuntimeError if one up to it is missing.

    Nobody may be appending. Line n of both files is step n, which is what makes this check enough.
    """
    for path in (run.metrics, run.timing):
        kept = read_lines(path)[:step]
        if [line["step"] for line in kept] != list(range(1, step + 1)):
            raise RuntimeError(
                f"{path} does not have one line for each of the first {step} steps, which a checkpoint says were made; "
                f"move {run.path} away to begin the run anew"
            )
        write_atomic(path, b"".join(json.dumps(line).encode() + b"\n" for line in kept))
