"""What becomes of the checkpoints of a run: which become artifacts, which are sent elsewhere, which are deleted.

Only the supervisor's process does any of this. Workers write checkpoints and never delete one.
"""

import shutil
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from data.errors import InputError
from stages.base import Inputs
from stages.errors import TryAgain
from stages.journal import Journal
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.background import Background
from stages.pretrain.checkpoints.health import heldout_problem, is_last, is_proven
from stages.pretrain.checkpoints.index import Published
from stages.pretrain.checkpoints.measured import durable_warning, last_lines, local_seconds
from stages.pretrain.checkpoints.publish import publish
from stages.pretrain.checkpoints.retention import kept, num_kept
from stages.pretrain.checkpoints.tier import POLL_SECONDS, DurableTier
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory
from stages.store import Artifact

LEAST_MEASURED_STEPS = 10
TRASH = ".trash-"


def nothing() -> None:
    """Goes on waiting."""


class Keeper:
    """Publishes the durable checkpoints of one run as artifacts, each as soon as it is healthy, sends them to the
    durable store if there is one, and deletes what is not to be kept.

    `poll` only looks and decides. What takes long (reading every byte, deleting, sending) happens in threads; what they
    have to say, and what went wrong there, comes out of a later `poll`.
    `published`: by step; a `Published` is only in the durable store.
    """

    def __init__(
        self,
        config: PretrainConfig,
        inputs: Inputs,
        run: RunDirectory,
        vocabulary_size: int,
        journal: Journal,
        *,
        interrupt: Callable[[], None] = nothing,
        store_options: Mapping[str, Any] | None = None,
    ) -> None:
        """interrupt: called several times a second while a method waits for something, which ends with what it raises.
        store_options: of the file system of durable_url. Raises InputError if there is no such file system."""
        self.published: dict[int, Artifact | Published] = {}
        self._config, self._inputs, self._run, self._journal = config, inputs, run, journal
        self._vocabulary_size = vocabulary_size
        self._durable = frozenset(config.durable_steps())
        self._losses: dict[int, float] = {}
        self._seen: set[int] = set()
        self._reached = 0
        self._is_advised = False
        self._background = Background("keeper")
        self._publishing: dict[int, Future[Artifact | None]] = {}
        self._deleting = [self._delete(path) for path in run.checkpoints.glob(f"{TRASH}*")]
        self._interrupt = interrupt
        self._tier = (
            DurableTier(config, run, journal, interrupt=interrupt, options=store_options)
            if config.durable_url
            else None
        )
        for artifact in inputs.store.all("checkpoint"):
            if artifact.manifest.config["parent"] == inputs.key:
                self._note(artifact)
        for step, path in checkpoint.scan(run.checkpoints).complete.items():
            self._see(step, path)

    def recover(self) -> None:
        """Before anything of the run directory is read: bring in what only the durable store has. Raises InputError,
        TryAgain (see `DurableTier.recover`)."""
        if self._tier is None:
            return
        self._run.checkpoints.mkdir(parents=True, exist_ok=True)
        for step, made in self._tier.recover().items():
            self.published.setdefault(step, made)
        for step, path in checkpoint.scan(self._run.checkpoints).complete.items():
            self._see(step, path)

    def fetch(self, wanted: Callable[[int], bool]) -> int:
        """Bring in the newest checkpoint of the durable store for which `wanted` holds. Returns its step, 0 if there is
        none. Raises TryAgain if the store does not answer."""
        return self._tier.fetch(wanted) if self._tier else 0

    def poll(self, reached: int) -> None:
        """Look at the run directory, where steps up to `reached` are done, and say what has happened. Raises what went
        wrong in publishing; InputError if the training has diverged at its end."""
        self._reached = reached
        self._collect()
        complete = checkpoint.scan(self._run.checkpoints).complete
        for step in [step for step in complete if step not in self._seen]:
            self._see(step, complete[step])
            self._journal.event("checkpoint.saved", step=step, durable=step in self._durable, **self._costs(step))
            if step in self.published:
                self._compare(complete[step])
        for step in [step for step in complete if self._is_pending(step) and step not in self._publishing]:
            proven = is_proven(step, reached=reached, config=self._config)
            if not proven and reached == self._config.num_steps and is_last(step, config=self._config):
                self._require_sound(complete[step])
                proven = True
            if proven:
                self._publishing[step] = self._background.submit(
                    partial(publish, complete[step], self._inputs, self._run, num_steps=self._config.num_steps)
                )
        self._prune(complete)
        self._advise()
        if self._tier:
            self._tier.tell()

    def forget(self, step: int) -> None:
        """The run goes back to `step`: later checkpoints will be made anew."""
        self._seen = {seen for seen in self._seen if seen <= step}
        self._losses = {at: loss for at, loss in self._losses.items() if at <= step or at in self.published}

    def checkpoint_seconds(self) -> float | None:
        """Seconds between local checkpoints for an attempt that begins now, from what has been measured so far; None
        before anything has been."""
        return local_seconds(self._config, self._run, self._reached)

    @property
    def is_busy(self) -> bool:
        """Whether something is being published or deleted."""
        return bool(self._publishing or self._deleting)

    def require_all(self) -> list[Artifact | Published]:
        """The artifacts of all durable steps, in order, when all is published and sent. Raises what `poll` raises;
        TryAgain if the durable store does not take what it is to keep; RuntimeError if a checkpoint is neither
        published nor in the run directory."""
        while self.is_busy:
            under_way: list[Future[Any]] = [*self._publishing.values(), *self._deleting]
            wait(under_way, POLL_SECONDS, return_when=FIRST_COMPLETED)
            self._interrupt()
            self.poll(self._reached)
        missing = [step for step in sorted(self._durable) if step not in self.published]
        if missing:
            raise RuntimeError(
                f"the checkpoints of steps {missing} are neither in {self._run.checkpoints} nor among the artifacts; "
                f"move {self._run.path} away to train anew"
            )
        if self._tier:
            self._tier.wait()
        return [self.published[step] for step in sorted(self._durable)]

    def close(self) -> None:
        """Wait for what is being published, unless the run is to stop, and end the sending. What does not get done is
        taken up by the next supervisor."""
        try:
            while any(not future.done() for future in self._publishing.values()):
                self._interrupt()
                wait(self._publishing.values(), POLL_SECONDS)
            self._collect()
        except TryAgain:  # the run is to stop
            pass
        except Exception as error:  # it ends for a reason of its own, which this must not hide
            self._journal.warning(f"a checkpoint could not be published, which is tried again: {error}")
        if self._tier:
            self._tier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _collect(self) -> None:
        """Take in what the background has done."""
        for step in [step for step, future in self._publishing.items() if future.done()]:
            artifact = self._publishing.pop(step).result()
            if artifact is not None:
                self._note(artifact)
                self._journal.event(
                    "checkpoint.healthy",
                    step=step,
                    key=artifact.key,
                    path=str(artifact.path),
                    tokens_seen=artifact.facts["tokens_seen"],
                    heldout_loss=artifact.facts["heldout_loss"],
                )
                self._journal.event("checkpoint.storage", **self._storage(artifact))
        for future in [future for future in self._deleting if future.done()]:
            self._deleting.remove(future)
            future.result()

    def _note(self, artifact: Artifact) -> None:
        """This artifact is one of the checkpoints of the run."""
        step, facts = artifact.facts["step"], artifact.facts
        self.published[step] = artifact
        if facts["heldout_loss"] is not None:
            self._losses[step] = facts["heldout_loss"]
        if self._tier:
            self._tier.offer(artifact.path, Published(step=step, key=artifact.key, digest=artifact.digest, facts=facts))

    def _see(self, step: int, path: Path) -> None:
        """This checkpoint is in the run directory."""
        self._seen.add(step)
        try:
            loss = checkpoint.read_state(path).heldout_loss
        except (OSError, ValueError):  # whoever wants to use it will find out more
            return
        if loss is not None and step in self._durable:
            self._losses.setdefault(step, loss)

    def _costs(self, step: int) -> dict[str, Any]:
        """What saves.jsonl says of the latest checkpoint of this step."""
        found = [line for line in last_lines(self._run.saves) if line["step"] == step]
        return {name: value for name, value in found[-1].items() if name not in ("step", "durable")} if found else {}

    def _is_pending(self, step: int) -> bool:
        """Whether this checkpoint is still to become an artifact on this machine."""
        return step in self._durable and not isinstance(self.published.get(step), Artifact)

    def _require_sound(self, path: Path) -> None:
        state = checkpoint.read_state(path)
        problem = heldout_problem(state, config=self._config, vocabulary_size=self._vocabulary_size)
        if problem:
            raise InputError(problem)

    def _compare(self, path: Path) -> None:
        """Say so if a step that is an artifact already was made again and came out otherwise, as on another number
        of processes."""
        state = checkpoint.read_state(path)
        artifact = self.published[state.step]
        if state.state_digest != artifact.facts["state_digest"]:
            self._journal.warning(
                f"{path.name} was made again and differs from the artifact {artifact.key} in low-order bits; "
                "the artifact stays as it is"
            )

    def _prune(self, complete: Mapping[int, Path]) -> None:
        """Delete the complete checkpoints that `retention` does not keep."""
        needed = kept(
            complete,
            newest=self._config.keep_local,
            losses=self._losses,
            healthy=[step for step in complete if is_proven(step, reached=self._reached, config=self._config)],
            durable=self._durable,
            keep_every=self._config.keep_every,
            pending=[step for step in complete if self._is_pending(step)],
        )
        for step, path in complete.items():
            if step not in needed:
                trash = path.with_name(f"{TRASH}{path.name}-{uuid.uuid4().hex[:8]}")
                path.rename(trash)
                self._deleting.append(self._delete(trash))

    def _delete(self, path: Path) -> "Future[None]":
        return self._background.submit(partial(shutil.rmtree, path))

    def _storage(self, artifact: Artifact) -> dict[str, int]:
        """Bytes of the checkpoints of the run, now and at its end, on this machine and in the durable store, if each is
        as large as `artifact`. What is local and an artifact too takes room once."""
        each = sum(entry.bytes for entry in artifact.manifest.files)
        here = {step for step, found in self.published.items() if isinstance(found, Artifact)}
        here |= checkpoint.scan(self._run.checkpoints).complete.keys()
        told = {"bytes": each * len(here), "bytes_at_end": each * (len(self._durable) + self._config.keep_local)}
        if self._tier:
            most = num_kept(self._durable, newest=self._config.keep_local, keep_every=self._config.keep_every)
            told["store_bytes_at_end"] = each * most
        return told

    def _advise(self) -> None:
        """Once the time of a step is known: say so if durable checkpoints are too far apart, or too close."""
        if self._is_advised or self._reached < LEAST_MEASURED_STEPS:
            return
        self._is_advised = True
        warning = durable_warning(self._config, self._run, self._reached)
        if warning:
            self._journal.warning(warning)
