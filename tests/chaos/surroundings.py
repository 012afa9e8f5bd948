"""What surrounds a disturbed run: its disk, its links, its clock and its durable store, and what goes wrong with each.

A run has the surroundings that its faults need; settings of the training, variables of its environment and words before
its command go with them.
"""

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.chaos import disk, links, plan, store
from tests.chaos.plan import Fault

SHIFTED = Path(__file__).parent / "shifted"
NEEDS_ROOT = {plan.FULL_DISK, plan.SLOW_LINK, plan.CUT_LINK}


def possible(kind: str) -> bool:
    """Whether this user can bring such a fault about."""
    return kind not in NEEDS_ROOT or os.geteuid() == 0


class Surroundings:
    """Of the run in `folder`, as faults of these kinds need them."""

    def __init__(self, folder: Path, kinds: Iterable[str]) -> None:
        self.settings: dict[str, Any] = {}
        self.variables: dict[str, str] = {}
        self.wrapper: list[str] = []
        self._folder = folder
        self._kinds = set(kinds)
        self._stack = ExitStack()
        self._store: store.Store | None = None

    def __enter__(self) -> "Surroundings":
        if plan.FULL_DISK in self._kinds:
            self._stack.enter_context(disk.small(self._folder / "store"))
        if self._kinds & {plan.SLOW_LINK, plan.CUT_LINK}:
            self.wrapper = links.WRAPPER
        if self._kinds & {*plan.STORE_KINDS, plan.LOST}:
            self._store = self._stack.enter_context(store.store())
            self.settings |= self._store.settings
            self.variables |= self._store.variables
        if plan.CLOCK_JUMP in self._kinds:
            self._have_clock(self._folder / "clock")
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def is_hit(self, fault: Fault) -> bool:
        """Whether the run has met a fault that it is disturbed by."""
        return fault.kind not in plan.STORE_KINDS or (self._store is not None and self._store.is_hit)

    @contextmanager
    def disturbed(self, fault: Fault, supervisor: int) -> Iterator[None]:
        """While the block lasts; a clock that has jumped stays so."""
        if fault.kind == plan.FULL_DISK:
            with disk.full(self._folder / "store"):
                yield
        elif fault.kind in (plan.SLOW_LINK, plan.CUT_LINK):
            rate = links.SLOW if fault.kind == plan.SLOW_LINK else links.CUT
            with links.throttled(supervisor, rate):
                yield
        elif fault.kind in plan.STORE_KINDS:
            assert self._store is not None
            with self._store.disturbed(fault):
                yield
        else:
            assert fault.kind == plan.CLOCK_JUMP, fault
            _shift(self._folder / "clock", fault.jump_seconds)
            yield

    def _have_clock(self, clock: Path) -> None:
        clock.write_bytes(struct.pack("d", 0.0))
        path = [str(SHIFTED), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.variables |= {"LONGHAUL_CHAOS_CLOCK": str(clock), "PYTHONPATH": os.pathsep.join(path)}


def _shift(clock: Path, seconds: float) -> None:
    """Let the wall clock of the run jump; see shifted/sitecustomize.py."""
    with open(clock, "r+b") as file, mmap.mmap(file.fileno(), 8) as place:
        (before,) = struct.unpack("d", place[:8])
        place[:8] = struct.pack("d", before + seconds)
