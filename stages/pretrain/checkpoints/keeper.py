"""What becomes of the checkpoints of a run: which one to go on from, which become artifacts, which are deleted.

Only the supervisor's process does any of this. Workers write checkpoints and never delete one.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from data.errors import InputError
from stages.base import Facts, Inputs, derive
from stages.journal import Journal
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.checkpoints.health import heldout_problem, is_last, is_proven
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory
from stages.store import Artifact

REVISION = 2


def always(step: int) -> bool:
    """Any checkpoint will do."""
    return True


def choose(run: RunDirectory, journal: Journal, *, wanted: Callable[[int], bool]) -> int:
    """The newest complete and intact checkpoint for which `wanted` holds; 0 if there is none, to begin anew.

    What a kill left unfinished is deleted, and what is damaged or newer than the one chosen is set aside; the journal
    says so. Of what was ever set aside as damaged, and as unhealthy, only the one of the highest step is kept.
    """
    step = _choose(run, journal, wanted)
    for path in checkpoint.superseded(run.checkpoints):
        shutil.rmtree(path)
        journal.warning(f"{path.name} has been deleted: a newer checkpoint was set aside for the same reason")
    return step


def _choose(run: RunDirectory, journal: Journal, wanted: Callable[[int], bool]) -> int:
    found = checkpoint.scan(run.checkpoints)
    for path in found.unfinished:
        if path.suffix == ".tmp":
            shutil.rmtree(path)
            journal.warning(f"checkpoint {path.name} was not finished and has been deleted")
        else:
            aside = checkpoint.set_aside(path, checkpoint.DAMAGED)
            journal.warning(f"checkpoint {path.name} is incomplete and has been set aside as {aside.name}")
    for step, path in reversed(found.complete.items()):
        if not wanted(step):
            aside = checkpoint.set_aside(path, checkpoint.UNHEALTHY)
            journal.warning(f"checkpoint {path.name} is not healthy and has been set aside as {aside.name}")
            continue
        problems = checkpoint.problems(path)
        if not problems:
            return step
        aside = checkpoint.set_aside(path, checkpoint.DAMAGED)
        journal.warning(
            f"checkpoint {path.name} is damaged ({'; '.join(problems)}) and has been set aside as {aside.name}"
        )
    return 0


def prune(run: RunDirectory, config: PretrainConfig, *, reached: int, unpublished: set[int]) -> None:
    """Delete complete checkpoints that nobody needs: neither among the newest, nor the one to roll back to, nor
    still to be published."""
    complete = checkpoint.scan(run.checkpoints).complete
    proven = [step for step in complete if is_proven(step, reached=reached, config=config)]
    needed = {*list(complete)[-config.keep_local :], *proven[-1:], *unpublished}
    for step, path in complete.items():
        if step not in needed:
            checkpoint.remove(path)


@dataclass
class Keeper:
    """Publishes the durable checkpoints of one run as artifacts, each as soon as it is healthy."""

    config: PretrainConfig
    inputs: Inputs
    run: RunDirectory
    vocabulary_size: int
    journal: Journal
    published: dict[int, Artifact] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for artifact in self.inputs.store.all("checkpoint"):
            if artifact.manifest.config["parent"] == self.inputs.key:
                self.published[artifact.manifest.config["step"]] = artifact
        self._seen.update(checkpoint.scan(self.run.checkpoints).complete)

    def poll(self, reached: int) -> None:
        """Look at the run directory, where steps up to `reached` are done. What was seen, published or pruned before
        costs next to nothing."""
        complete = checkpoint.scan(self.run.checkpoints).complete
        durable = set(self.config.durable_steps())
        for step in [step for step in complete if step not in self._seen]:
            self._seen.add(step)
            self.journal.event("checkpoint.saved", step=step, durable=step in durable)
            if step in self.published:
                self._compare(complete[step], self.published[step])
        for step in [step for step in complete if step in durable and step not in self.published]:
            if is_proven(step, reached=reached, config=self.config):
                self._publish(complete[step])
            elif reached == self.config.num_steps and is_last(step, config=self.config):
                self._publish_if_sound(complete[step])
        prune(self.run, self.config, reached=reached, unpublished=durable - self.published.keys())

    def forget(self, step: int) -> None:
        """The run goes back to `step`: later checkpoints will be made anew."""
        self._seen = {seen for seen in self._seen if seen <= step}

    def require_all(self) -> list[Artifact]:
        """The artifacts of all durable steps, in order. Raises RuntimeError if one is neither published nor in the
        run directory."""
        missing = [step for step in self.config.durable_steps() if step not in self.published]
        if missing:
            raise RuntimeError(
                f"the checkpoints of steps {missing} are neither in {self.run.checkpoints} nor among the artifacts; "
                f"move {self.run.path} away to train anew"
            )
        return [self.published[step] for step in self.config.durable_steps()]

    def _publish_if_sound(self, path: Path) -> None:
        state = checkpoint.read_state(path)
        problem = heldout_problem(state, config=self.config, vocabulary_size=self.vocabulary_size)
        if problem:
            raise InputError(problem)
        self._publish(path)

    def _compare(self, path: Path, artifact: Artifact) -> None:
        """Say so if a step that is an artifact already was made again and came out otherwise, as on another number
        of processes."""
        digest = checkpoint.read_state(path).state_digest
        if digest != artifact.facts["state_digest"]:
            self.journal.warning(
                f"{path.name} was made again and differs from {artifact.path} in low-order bits; "
                "the artifact stays as it is"
            )

    def _publish(self, path: Path) -> None:
        """A copy by hard links becomes the artifact, so that the local checkpoint can still be resumed from."""
        state = checkpoint.read_state(path)
        checkpoint.require_intact(path)
        staging = self.run.path / f"publish-{path.name}"
        shutil.rmtree(staging, ignore_errors=True)
        shutil.copytree(path, staging, copy_function=_link)
        artifact = derive(
            self.inputs,
            stage="checkpoint",
            revision=REVISION,
            identity={"step": state.step},
            directory=staging,
            facts=facts(state),
        )
        shutil.rmtree(staging, ignore_errors=True)
        self.published[state.step] = artifact
        self.journal.event(
            "checkpoint.healthy",
            step=state.step,
            key=artifact.key,
            path=str(artifact.path),
            tokens_seen=state.tokens_seen,
            heldout_loss=state.heldout_loss,
        )


def facts(state: StepState) -> Facts:
    """What the checkpoint artifact says of itself. DCP's files hold a fresh id each time, so the digest of the
    tensors stands for them."""
    return Facts(
        facts={
            "step": state.step,
            "tokens_seen": state.tokens_seen,
            "state_digest": state.state_digest,
            "heldout_loss": state.heldout_loss,
        },
        measured_files=(checkpoint.TENSORS, checkpoint.CHECKSUMS),
    )


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
