"""The places at which a test may make a training process fail.

A hook is called as `hook(point, step, rank, value)` and returns the value to go on with. It may change the value,
raise, sleep or kill its process. Points, in the order of a step: "begin" (value: the draw of its batch), "batch" (its
`Fed`), "loss" (the summed objective of a micro-batch, a tensor), "update" (the float64 scalar that makes gradients
those of the mean loss, before the optimizer's step), "end" (None, when its numbers have been read). In the thread that
writes a checkpoint, of its step: "staged" (None, its copy is made and nothing is written), "written" (None, its tensors
are on the disk, its checksums are not). Where replica groups meet: "joining" (None, before they connect), "sending" and
"receiving" (None, before each tensor of the state that passes to one that is behind).

Naming one imports its module, so a job that does is refused unless the environment has ALLOWED = 1.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

from data.errors import InputError

ALLOWED = "LONGHAUL_TEST_HOOKS"
Hook = Callable[[str, int, int, Any], Any]


def no_fault(point: str, step: int, rank: int, value: Any) -> Any:
    """The hook of every run that is not a test."""
    return value


def load_hook(name: str) -> Hook:
    """The hook `module:function`, or `no_fault` for an empty name. Raises InputError outside tests."""
    if not name:
        return no_fault
    if os.environ.get(ALLOWED) != "1":
        raise InputError(f"job.json names the hook {name!r}, which only tests may ({ALLOWED}=1); remove it there")
    module, _, function = name.partition(":")
    hook: Hook = getattr(importlib.import_module(module), function)
    return hook
