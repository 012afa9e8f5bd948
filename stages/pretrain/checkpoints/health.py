"""When a checkpoint is healthy: something that a rollback, an evaluation or an export may trust.

A step whose loss or gradient is not finite never completes, so every completed step is a clean one. A checkpoint is
healthy once `healthy_steps` clean steps have followed it. The last ones of a run cannot have as many after them: for
these the held-out loss decides, which must not be above the one of the durable checkpoint before (for the first: the
loss of a uniform guess) by more than a stated factor.
"""

import math

from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.config import PretrainConfig


def is_proven(step: int, *, reached: int, config: PretrainConfig) -> bool:
    """Whether enough clean steps have followed `step`, where `reached` is the last completed one."""
    return step + config.healthy_steps <= reached


def is_last(step: int, *, config: PretrainConfig) -> bool:
    """Whether the run ends before enough steps can follow `step`."""
    return step + config.healthy_steps > config.num_steps


def heldout_problem(state: StepState, *, config: PretrainConfig, vocabulary_size: int) -> str:
    """What is wrong with the held-out loss of a durable checkpoint, or ""."""
    loss = state.heldout_loss
    assert loss is not None, f"no held-out loss was measured at step {state.step}"
    before = state.heldout[-2][1] if len(state.heldout) > 1 else math.log(vocabulary_size)
    if math.isfinite(loss) and loss <= before * config.heldout_max_ratio:
        return ""
    return (
        f"held-out loss is {loss:.4f} at step {state.step}, above {config.heldout_max_ratio} times the {before:.4f} "
        "before it: the training has diverged; lower pretrain.learning_rate, "
        "or raise pretrain.heldout_max_ratio if that is expected"
    )
