"""What the ranks of a disturbed run do beside training: they stretch each step, so that a fault finds it, and keep the
ledger of samples.

Each rank appends to a file of its own in `LONGHAUL_CHAOS/ledger`, each line with one write: at the begin of a step, and
at its end with the samples that it has trained on. Times are monotonic seconds, which all processes of a machine share.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

FOLDER, STEP_SECONDS = "LONGHAUL_CHAOS", "LONGHAUL_CHAOS_STEP_SECONDS"
HOOK = f"{__name__}:inject"


class _Book:
    """The ledger of this process, which is one rank of one attempt."""

    def __init__(self, rank: int) -> None:
        folder = Path(os.environ[FOLDER])
        (job,) = (folder / "store" / "runs").glob("*/job.json")
        self._process = f"{os.getpid()}-{time.monotonic_ns()}"
        self._resume = json.loads(job.read_text(encoding="utf-8"))["resume_step"]
        self._file = os.open(folder / "ledger" / f"rank-{rank}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._samples: list[list[int]] = []

    def keep(self, samples: Any) -> None:
        self._samples = [
            [int(domain), int(sequence)] for domain, sequence in zip(samples.domain, samples.sequence, strict=True)
        ]

    def write(self, point: str, step: int) -> None:
        line: dict[str, Any] = {"process": self._process, "pid": os.getpid(), "resume": self._resume, "step": step}
        line |= {"point": point, "at": time.monotonic()}
        if point == "end":
            line["samples"] = self._samples
        os.write(self._file, json.dumps(line).encode() + b"\n")


_book: _Book | None = None


def inject(point: str, step: int, rank: int, value: Any) -> Any:
    global _book
    if point not in ("begin", "batch", "end"):
        return value
    if _book is None:
        _book = _Book(rank)
    if point == "batch":
        _book.keep(value.samples)
        return value
    _book.write(point, step)
    if point == "begin":
        time.sleep(float(os.environ[STEP_SECONDS]))
    return value
