"""Energy for each new token, where the machine tells it: binary logarithm of joules.

A GPU tells what it has used since its driver was loaded (NVML). Processors tell it through the kernel's powercap
counters (RAPL), for the whole host and often to root alone, and the counters wrap round.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from eval.efficiency.bench import Clock
from eval.efficiency.rounds import device_type, item, measured
from eval.efficiency.settings import ThroughputSettings
from eval.efficiency.work import continue_greedily, prompt, read
from eval.results import Skipped, TaskResult
from eval.suites import Suite, TaskDefinition

if TYPE_CHECKING:
    from torch import Tensor

    from eval.scoring.scorer import Progress
    from eval.subject import Subject

POWERCAP = Path("/sys/class/powercap")
LEAST_SECONDS = 0.2  # the counters move a thousand times a second at most

Joules = Callable[[], float]


def run_task(suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None") -> TaskResult:
    """Raises Skipped where no counter can be read."""
    device = device_type(subject)
    counter = gpu_joules() if device == "cuda" else processor_joules(POWERCAP)
    return energy(suite, task, subject, progress, counter, device)


def energy(
    suite: Suite,
    task: TaskDefinition,
    subject: "Subject",
    progress: "Progress | None",
    joules: Joules,
    device: str,
    clock: Clock = time.perf_counter,
) -> TaskResult:
    """By a counter. A round is the mean over the batch sizes, of which each goes on until it has taken long enough for
    the counter; a round in which it wrapped round, or did not move, is left out.
    """
    settings = task.chosen(ThroughputSettings)
    model = subject.scorer.model
    asked = [prompt(model, settings, size, settings.new_tokens) for size in settings.batch_sizes]

    def joules_per_token(tokens: "Tensor", num_new: int) -> float:
        began, began_joules, done = clock(), joules(), 0
        while done == 0 or clock() - began < LEAST_SECONDS:
            new = continue_greedily(read(model, tokens))
            for _ in range(1 + num_new):
                next(new)
            done += (1 + num_new) * len(tokens)
        return (joules() - began_joules) / done

    items = []
    for i in range(task.limit):
        subject.scorer.between()
        found = [joules_per_token(tokens, num_new) for tokens, num_new in asked]
        if min(found) > 0:
            shapes = [(*tokens.shape, num_new) for tokens, num_new in asked]
            items.append(item(i, math.fsum(map(math.log2, found)) / len(found), task, device, shapes))
        if progress is not None:
            progress(i + 1, task.limit)
    if not items:
        raise Skipped("the energy counter does not move")
    of = "the GPU" if device == "cuda" else "all processors of the host, whatever they work on"
    return measured(suite, task, items, {"measured_by": f"log2 of joules for each new token, of {of}"})


def processor_joules(counters: Path) -> Joules:
    """What the host's processor packages have used. Raises Skipped where that cannot be read."""

    def joules() -> float:
        return sum(int((package / "energy_uj").read_text()) for package in packages) / 1e6

    packages = [path for path in sorted(counters.glob("intel-rapl:*")) if path.name.count(":") == 1]
    try:
        joules()
    except OSError as error:
        raise Skipped(f"the processors' energy cannot be read: {error}") from None
    if not packages:
        raise Skipped("this machine does not tell what energy it uses")
    return joules


def gpu_joules() -> Joules:
    """What the current GPU has used. Raises Skipped where that cannot be read."""
    try:
        import pynvml
        import torch

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception as error:  # no package, no library, no permission
        raise Skipped(f"the GPU's energy cannot be read: {error}") from None
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
