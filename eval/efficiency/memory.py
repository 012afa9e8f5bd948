"""How much memory a model needs at work, and how large it is on disk.

Scores are binary logarithms of MiB: 1 more is twice as much.

On a GPU the allocator counts. On a CPU it is the process's resident memory (proc(5): VmHWM, which writing 5 to
clear_refs resets, and VmRSS), over what was resident before; what the C library held free is returned before that
(malloc_trim(3)). The weights, which were resident before, are added.
"""

import ctypes
import math
from pathlib import Path
from typing import TYPE_CHECKING

from eval.efficiency.rounds import device_type, item, measured
from eval.efficiency.settings import MemorySettings
from eval.efficiency.work import continue_greedily, prompt, read
from eval.results import Skipped, TaskResult
from eval.suites import Suite, TaskDefinition

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress
    from eval.subject import Subject

MIB = 2**20
PROCESS = Path("/proc/self")


def run_model_bytes(suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None") -> TaskResult:
    """Of the weights as they are stored, else as they are loaded: a fact, and the only item."""
    num_bytes = subject.model_bytes if subject.stored_bytes is None else subject.stored_bytes
    items = (item(0, math.log2(num_bytes / MIB), task),)
    details = {"bytes": num_bytes, "num_parameters": subject.num_parameters}
    return TaskResult(suite=suite.name, axis=suite.axis, definition=task, items=items, details=details)


def run_peak_memory(suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None") -> TaskResult:
    """While a batch is continued. Raises Skipped where the system does not tell."""
    settings = task.chosen(MemorySettings)
    model = subject.scorer.model
    tokens, num_new = prompt(model, settings, settings.batch_size, settings.new_tokens)
    device = device_type(subject)
    peak = CudaPeak() if device == "cuda" else ResidentPeak()
    items, extra = [], []
    for i in range(-1, task.limit):
        subject.scorer.between()
        peak.reset()
        new = continue_greedily(read(model, tokens))
        for _ in range(1 + num_new):
            next(new)
        if i >= 0:  # the first round also loads code
            extra.append(peak.bytes_since())
            score = math.log2((subject.model_bytes + extra[-1]) / MIB)
            items.append(item(i, score, task, device, tokens.shape, num_new))
            if progress is not None:
                progress(i + 1, task.limit)
    details = {
        "measured_by": f"log2 of MiB: weights, and {peak.described}",
        "mebibytes": round((subject.model_bytes + max(extra)) / MIB, 2),
        "mebibytes_beside_weights": round(max(extra) / MIB, 2),
    }
    return measured(suite, task, items, details)


class ResidentPeak:
    """Of this process."""

    described = "the most resident memory over what was resident before"

    def __init__(self) -> None:
        self._before = 0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def reset(self) -> None:
        """Count from here."""
        if self._trim is not None:
            self._trim(0)
        try:
            (PROCESS / "clear_refs").write_text("5")
        except OSError as error:
            raise Skipped(f"this system does not count the resident memory of a piece of work: {error}") from None
        self._before = _status("VmRSS")

    def bytes_since(self) -> int:
        """The most since `reset`, over what there was then."""
        return max(0, _status("VmHWM") - self._before)


class CudaPeak:
    """Of the allocator of the current GPU."""

    described = "the most that the GPU's allocator gave out over what it had given out before"

    def __init__(self) -> None:
        self._before = 0

    def reset(self) -> None:
        """Count from here."""
        import torch

        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self._before = torch.cuda.memory_allocated()

    def bytes_since(self) -> int:
        """The most since `reset`, over what there was then."""
        import torch

        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - self._before


def _status(field: str) -> int:
    for line in (PROCESS / "status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise Skipped(f"this system does not tell {field} of a process")
