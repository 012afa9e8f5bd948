"""What each rank says of itself while it runs: a record in a file that the supervisor reads, microseconds each.

A record says in which phase of which step the rank is, and how long that may last. Its `alive` is counted up by a
thread, so a rank that waits for another one is alive, and one that is stopped is not. The supervisor looks for changes
only, by its own clock: nothing depends on the time of day, or on clocks being alike.

Asked for a dump, a rank writes the stacks of all its threads (by a signal, which needs no running Python), and the last
collective operations of torch's flight recorder.
"""

import faulthandler
import json
import mmap
import os
import signal
import struct
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

DUMPS = signal.SIGUSR2
ALIVE_SECONDS = 0.5
SHOWN_COLLECTIVES = 20
# pid, phase, step, seconds, changes, alive, dumped; then the wish of the supervisor for a dump.
OF_RANK = struct.Struct("<qqqdqqq")
WISH = struct.Struct("<q")
RECORD_BYTES = 128
WISH_AT = 64


class Phase(IntEnum):
    """What a rank is doing. Every rank of a world goes through the same phases in the same order."""

    STARTING = 0
    READING = 1
    STEP = 2
    SAVING = 3
    HELDOUT = 4
    LEAVING = 5
    GROUPS = 6  # waiting for other replica groups


@dataclass(frozen=True)
class Beat:
    """A record. pid: 0 before the rank has begun; step: counted from 1; seconds: that the phase may last; changes: how
    often the phase has changed, which compares the progress of ranks; dumped: the last wish for a dump that was
    fulfilled."""

    pid: int
    phase: Phase
    step: int
    seconds: float
    changes: int
    alive: int
    dumped: int


class Beats:
    """The records of all ranks, for the supervisor."""

    def __init__(self, path: Path, size: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            missing = size * RECORD_BYTES - os.fstat(descriptor).st_size
            if missing > 0:  # written, since a full disk would end whoever touches the memory of a file with holes
                os.pwrite(descriptor, bytes(missing), size * RECORD_BYTES - missing)
            self._memory = mmap.mmap(descriptor, size * RECORD_BYTES)
        finally:
            os.close(descriptor)

    def clear(self, slots: Iterable[int]) -> None:
        """Forget what ranks in these places have said; none is running."""
        for slot in slots:
            self._memory[slot * RECORD_BYTES : (slot + 1) * RECORD_BYTES] = bytes(RECORD_BYTES)

    def read(self, slot: int) -> Beat:
        pid, phase, step, seconds, changes, alive, dumped = OF_RANK.unpack_from(self._memory, slot * RECORD_BYTES)
        return Beat(pid, Phase(phase), step, seconds, changes, alive, dumped)

    def want_dump(self, slot: int, number: int) -> None:
        """Ask a rank for its last collective operations; `dumped` will be `number`."""
        WISH.pack_into(self._memory, slot * RECORD_BYTES + WISH_AT, number)

    def close(self) -> None:
        self._memory.close()


class Heart:
    """The record of this rank. With `stacks`, a folder, it also dumps on request, as rank-<slot>.txt and .json."""

    def __init__(self, path: Path, slot: int, *, seconds: float, stacks: Path | None = None) -> None:
        """seconds: that starting may take. The file is there."""
        descriptor = os.open(path, os.O_RDWR)
        try:
            size = os.fstat(descriptor).st_size
            self._memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._at = slot * RECORD_BYTES
        self._phase, self._step, self._seconds = Phase.STARTING, 0, seconds
        self._changes = self._alive = self._dumped = 0
        self._lock = threading.Lock()
        self._collectives = None if stacks is None else stacks / f"rank-{slot}.json"
        if stacks is not None:
            stacks.mkdir(exist_ok=True)
            # Held open, as a signal handler can open nothing; appended to, as the supervisor empties it.
            self._stacks = open(stacks / f"rank-{slot}.txt", "a", encoding="utf-8")  # noqa: SIM115
            faulthandler.register(DUMPS, file=self._stacks, all_threads=True, chain=False)
        self._write()
        threading.Thread(target=self._live, name="heart", daemon=True).start()

    def beat(self, phase: Phase, step: int, seconds: float) -> None:
        """The rank is in `phase` of `step` from now on, for `seconds` at most."""
        with self._lock:
            self._phase, self._step, self._seconds = phase, step, seconds
            self._changes += 1
            self._write()

    def _write(self) -> None:
        """As a whole: packed in place, it would be zero for a moment, which reads as a rank that has not begun."""
        self._memory[self._at : self._at + OF_RANK.size] = OF_RANK.pack(
            os.getpid(), self._phase, self._step, self._seconds, self._changes, self._alive, self._dumped
        )

    def _live(self) -> None:
        never = threading.Event()
        while not never.wait(ALIVE_SECONDS):
            (wish,) = WISH.unpack_from(self._memory, self._at + WISH_AT)
            if wish != self._dumped:
                self._dump_collectives()
            with self._lock:
                self._alive += 1
                self._dumped = wish
                self._write()

    def _dump_collectives(self) -> None:
        if self._collectives is None:
            return
        try:
            self._collectives.write_text(json.dumps(last_collectives(), indent=1), encoding="utf-8")
        except Exception as error:  # a rank that hangs must still be told of
            print(f"the last collective operations could not be written: {error}", file=sys.stderr)


def last_collectives() -> list[dict[str, Any]]:
    """The latest collective operations of this process, the last one last, as torch's flight recorder has them; empty
    without one."""
    if "torch.distributed" not in sys.modules:
        return []
    import torch

    dump = getattr(torch._C, "_distributed_c10d", None)
    if not hasattr(dump, "_dump_fr_trace_json"):
        return []
    entries = json.loads(dump._dump_fr_trace_json()).get("entries", [])  # type: ignore[union-attr]
    kept = ("collective_seq_id", "profiling_name", "state", "input_sizes", "output_sizes", "process_group")
    return [{name: entry[name] for name in kept if name in entry} for entry in entries[-SHOWN_COLLECTIVES:]]
