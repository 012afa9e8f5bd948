"""A user relies on: the memory that a step's line tells of is what the process holds."""

import subprocess
import sys

import torch

from stages.pretrain.memory.usage import usage

# Blocks of every other place are freed: they stay in the heap, and nothing but a block can use them.
SCRIPT = """
import torch
from stages.pretrain.memory.usage import usage
cpu = torch.device("cpu")
before = usage(cpu)
blocks = [torch.ones(250_000) for _ in range(100)]
held = usage(cpu)
del blocks[::2]
freed = usage(cpu)
assert held["resident_bytes"] - before["resident_bytes"] > 0.9 * 100_000_000, (before, held)
assert held["heap_bytes"] - before["heap_bytes"] > 0.9 * 100_000_000, (before, held)
assert abs(freed["heap_bytes"] - held["heap_bytes"]) < 2_000_000, (held, freed)
assert abs(freed["heap_free_bytes"] - held["heap_free_bytes"] - 50_000_000) < 2_000_000, (held, freed)
assert freed["fragmentation"] == round(freed["heap_free_bytes"] / freed["heap_bytes"], 6) > held["fragmentation"]
"""


def test_what_is_held_and_what_is_free() -> None:
    from stages.pretrain.supervision.attempt import HEAP

    subprocess.run([sys.executable, "-c", SCRIPT], check=True, env={**HEAP, "OMP_NUM_THREADS": "1"}, timeout=60)


def test_no_number_that_cannot_be_read_is_made_up(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from stages.pretrain.memory import usage as module

    monkeypatch.setattr(module, "_mallinfo2", lambda: None)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert usage(torch.device("cpu")) == {}
