"""Checkpoints that are written beside the training.

`begin` hands a state over and returns; the training goes on while a thread of each rank copies what the rank vouches
for and writes it (see `staging`, `writing`). `staged` holds the training up until the copy is made, right before it
changes a weight. One save is under way at a time: a second one waits for the first, so a training that saves more often
than it can is slowed down and says by how much.

What goes wrong in the background is raised by the next call of `poll`, `begin` or `finish`. The checkpoint of it is
then not there, and those before it are as they were.

The ranks agree over a group of their own, so that nothing passes between the messages of the training.

saves.jsonl has a line for each checkpoint, written just before its rename: step, durable, bytes, and in seconds
  blocked   that the training has stood still for it, held-out measurement apart
  waited    of these, for the checkpoint before
  staged    that its copy took
  heldout   that the held-out measurement before it took
  (seconds) from its begin to its rename
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.files import fsync_directory, write_json
from stages.journal import torn
from stages.pretrain.checkpoints.checkpoint import MODEL_CONFIG, STATE, TENSORS, StepState, seal, step_name
from stages.pretrain.checkpoints.staging import Staging
from stages.pretrain.checkpoints.tensors import Whole, digest, vouched_for, wholes
from stages.pretrain.faults import Hook, no_fault

if TYPE_CHECKING:
    from stages.pretrain.checkpoints.tensors import State
    from stages.pretrain.parallel.ranks import Ranks

TIMEOUT_SECONDS = 600.0  # of a message between the ranks


@dataclass
class _Save:
    """One checkpoint under way. Seconds as in saves.jsonl; began: on this process's monotonic clock."""

    state: StepState
    durable: bool
    began: float
    waited: float
    heldout: float
    peak_bytes: int
    blocked: float = 0.0
    staged: float = 0.0


class Saver:
    """Writes the checkpoints of one training, on one rank. All methods are called by all ranks alike."""

    def __init__(
        self,
        folder: Path,
        ranks: "Ranks",
        config: Mapping[str, Any],
        *,
        asynchronous: bool = True,
        log: Path | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        hook: Hook = no_fault,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """folder: of all checkpoints. config: the model, as transformers knows it. log: saves.jsonl. timeout_seconds:
        longest that a rank waits for another while a checkpoint is written. clock: seconds, monotonic. Collective."""
        import torch.distributed as dist

        self.blocked_seconds = 0.0  # that the training has stood still for all checkpoints so far
        self.staging_seconds = 0.0  # of these, in `staged`
        self._folder = folder
        self._ranks = ranks
        self._config = config
        self._asynchronous = asynchronous
        self._log = log
        self._hook = hook
        self._clock = clock
        self._staging = Staging(ranks.device, copies=asynchronous)
        self._group = None
        if ranks.size > 1:
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_seconds))
        self._wholes: dict[str, Whole] = {}
        self._save: _Save | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._saved: StepState | None = None

    @property
    def in_flight(self) -> bool:
        """Whether a checkpoint is under way on this rank."""
        return self._thread is not None and self._thread.is_alive()

    def begin(
        self,
        tensors: "State",
        state: StepState,
        *,
        durable: bool,
        heldout_seconds: float = 0.0,
        vouch: Callable[[int], Any] = lambda peak_bytes: None,
    ) -> None:
        """Save this state, in the background if saves are asynchronous; `staged` is to be called before it changes.

        vouch: called on the main rank, on another thread, before anything says that the checkpoint is whole, with the
        most memory that all ranks together had held up to now.
        """
        began = self._clock()
        self._join()
        waited = self._clock() - began
        if not self._wholes:
            self._wholes = wholes(tensors, self._ranks.size)
        assert tensors.keys() == self._wholes.keys(), "another state than the one before"
        self._staging.begin(vouched_for(tensors, self._wholes, self._ranks.rank))
        save = _Save(
            state=state,
            durable=durable,
            began=began,
            waited=waited,
            heldout=heldout_seconds,
            peak_bytes=self._ranks.own_peak_memory_bytes(),
        )
        self._save = save
        self._thread = threading.Thread(target=self._run, args=(save, vouch), name="checkpoint", daemon=True)
        save.blocked = self._clock() - began
        self._thread.start()
        if not self._asynchronous:
            self._join()
        self.blocked_seconds += self._clock() - began

    def staged(self) -> None:
        """Return once weights may change."""
        save = self._save
        if save is None:
            return
        seconds = self._staging.wait()
        save.blocked += seconds
        self.blocked_seconds += seconds
        self.staging_seconds += seconds
        self._save = None

    def poll(self) -> None:
        """Raise what has gone wrong in the background."""
        if self._error is not None:
            raise self._error

    def finish(self) -> StepState | None:
        """Wait for the save that is under way. The state that was saved last, on the main rank as it was saved; None if
        none was."""
        self._join()
        return self._saved

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.poll()

    def _run(self, save: _Save, vouch: Callable[[int], Any]) -> None:
        try:
            self._write(save, vouch)
        except BaseException as error:  # DCP's is none of Exception
            self._error = error

    def _write(self, save: _Save, vouch: Callable[[int], Any]) -> None:
        ranks, step = self._ranks, save.state.step
        began = self._clock()
        mine = self._staging.copy()
        save.staged = self._clock() - began
        self._hook("staged", step, ranks.rank, None)
        final = self._folder / step_name(step)
        work = self._folder / f"{final.name}.tmp"
        if ranks.is_main:
            assert not final.exists(), f"{final} is there already"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
        self._barrier()
        from stages.pretrain.checkpoints.writing import write_tensors

        hashes = write_tensors(work / TENSORS, self._wholes, mine, rank=ranks.rank, group=self._group)
        self._hook("written", step, ranks.rank, None)
        if save.durable:
            content = save.state.model_dump(mode="json")
            found = digest(self._wholes, mine, content, rank=ranks.rank, group=self._group)
            save.state = save.state.model_copy(update={"state_digest": found})
        told = self._gathered({"hashes": hashes, "peak_bytes": save.peak_bytes})
        if ranks.is_main:
            vouch(sum(of["peak_bytes"] for of in told))
            write_json(work / MODEL_CONFIG, dict(self._config))
            write_json(work / STATE, save.state.model_dump(mode="json"))
            known = {f"{TENSORS}/{name}": sha for of in told for name, sha in of["hashes"].items()}
            self._record(save, num_bytes=seal(work, known))
            work.rename(final)
            fsync_directory(self._folder)
        self._saved = save.state

    def _barrier(self) -> None:
        import torch.distributed as dist

        if self._group is not None:
            dist.barrier(group=self._group)

    def _gathered(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        """The values of all ranks; as JSON, since torch's own way for objects pickles."""
        import torch
        import torch.distributed as dist

        if self._group is None:
            return [value]
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self._ranks.size)]
        dist.all_gather(sizes, torch.tensor([len(content)]), group=self._group)
        padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
        padded[: len(content)] = content
        found = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(found, padded, group=self._group)
        return [json.loads(each[: int(size)].numpy().tobytes()) for each, size in zip(found, sizes, strict=True)]

    def _record(self, save: _Save, *, num_bytes: int) -> None:
        if self._log is None:
            return
        seconds = self._clock() - save.began
        line = {
            "step": save.state.step,
            "durable": save.durable,
            "bytes": num_bytes,
            "blocked_seconds": round(save.blocked if self._asynchronous else seconds, 6),
            "waited_seconds": round(save.waited, 6),
            "staged_seconds": round(save.staged, 6),
            "heldout_seconds": round(save.heldout, 6),
            "seconds": round(seconds, 6),
        }
        with open(self._log, "ab") as file:
            start = b"\n" if torn(self._log) else b""  # behind what a kill or a full disk has cut off
            file.write(start + json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
