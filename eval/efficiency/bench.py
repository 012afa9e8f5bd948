"""What times are measured with: a clock, and a fixed piece of work whose time they are divided by, so that a slower
machine, or a busy one, is not mistaken for a slower model.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

REFERENCE_WIDTH = {"cpu": 256, "cuda": 2048}
REFERENCE_STEPS = 40
REFERENCE_RUNS = 5


class Clock(Protocol):
    """Seconds since some time ago."""

    def __call__(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Bench:
    """clock: for scores. wall: for the times that are told beside them. reference: does the fixed work once. described:
    what all that is, in words; measurements with other ones are not compared.
    """

    clock: Clock
    wall: Clock
    reference: Callable[[], None]
    described: str

    def reference_seconds(self) -> float:
        """The middle of a few runs, by `clock`: what slows the machine down slows this too."""
        return statistics.median(self.seconds(self.reference) for _ in range(REFERENCE_RUNS))

    def seconds(self, work: Callable[[], None]) -> float:
        """By `clock`."""
        began = self.clock()
        work()
        return self.clock() - began


def make_bench(device_type: str) -> Bench:
    """On a CPU, time is the process's CPU time: what other processes take away is not the model's. On another device,
    it is the time that passes; the reference ends when its result is on the CPU, as a token does.
    """
    import torch

    width = REFERENCE_WIDTH.get(device_type, REFERENCE_WIDTH["cpu"])
    # Not of zeros or ones: a GPU multiplies these with less power, and so faster.
    matrix = torch.randn(width, width, generator=torch.Generator().manual_seed(0)).to(device_type) / width**0.5
    result = torch.mm(matrix, matrix)

    @torch.inference_mode()
    def reference() -> None:
        """As a model's work is: a large product, and many small ones one after another."""
        row = torch.mm(matrix, matrix, out=result)[:1]
        for _ in range(REFERENCE_STEPS):
            row = torch.tanh(torch.mm(row, matrix))
        row.sum().item()

    on_cpu = device_type == "cpu"
    time_of = f"CPU time (threads: {torch.get_num_threads()})" if on_cpu else "elapsed time"
    return Bench(
        clock=time.process_time if on_cpu else time.perf_counter,
        wall=time.perf_counter,
        reference=reference,
        described=f"{time_of} on {device_type} over that of float32 matrix products of width {width}",
    )
