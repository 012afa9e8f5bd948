"""One checkpoint and no training."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.pretrain.checkpoints.checkpoint import StepState, step_name
from stages.pretrain.checkpoints.saver import Saver
from stages.pretrain.parallel.ranks import Ranks

if TYPE_CHECKING:
    from stages.pretrain.checkpoints.tensors import State


def save_at_once(folder: Path, tensors: "State", state: StepState, config: Mapping[str, Any], ranks: Ranks) -> Path:
    """It is there when this returns."""
    Saver(folder, ranks, config, asynchronous=False).begin(tensors, state, durable=False)
    return folder / step_name(state.step)
