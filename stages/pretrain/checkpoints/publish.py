"""A checkpoint of the run directory becomes an artifact."""

import os
import shutil
from pathlib import Path

from stages.base import Facts, Inputs, derive
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.job import RunDirectory
from stages.store import Artifact

REVISION = 3


def publish(path: Path, inputs: Inputs, run: RunDirectory, *, num_steps: int) -> Artifact | None:
    """A copy of a checkpoint by hard links becomes the artifact, so that the local one can still be resumed from.
    num_steps: of the whole training, so that the last one knows that it is.
    Returns None if somebody has set the checkpoint aside. Raises CheckpointError if it is damaged."""
    staging = run.path / f"publish-{path.name}"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        shutil.copytree(path, staging, copy_function=_link)
        state = checkpoint.read_state(staging)
    except (OSError, shutil.Error):
        if path.exists():
            raise
        shutil.rmtree(staging, ignore_errors=True)
        return None
    checkpoint.require_intact(staging)
    artifact = derive(
        inputs,
        stage="checkpoint",
        revision=REVISION,
        identity={"step": state.step},
        directory=staging,
        facts=facts(state, num_steps),
    )
    shutil.rmtree(staging, ignore_errors=True)
    return artifact


def facts(state: StepState, num_steps: int) -> Facts:
    """What the checkpoint artifact says of itself. DCP's files hold a fresh id each time, so the digest of the
    tensors stands for them."""
    return Facts(
        facts={
            "step": state.step,
            "tokens_seen": state.tokens_seen,
            "state_digest": state.state_digest,
            "heldout_loss": state.heldout_loss,
            "last": state.step == num_steps,
        },
        measured_files=(checkpoint.TENSORS, checkpoint.CHECKSUMS),
    )


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
