import math

import pytest

from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.checkpoints.health import heldout_problem, is_last, is_proven
from tests.stages.pretrain import micro

CONFIG = micro.config(num_steps=100, healthy_steps=10, heldout_max_ratio=1.2)


def test_clean_steps_after_a_checkpoint_prove_it() -> None:
    assert not is_proven(50, reached=59, config=CONFIG)
    assert is_proven(50, reached=60, config=CONFIG)


def test_the_last_checkpoints_cannot_be_proven_by_steps() -> None:
    assert [is_last(step, config=CONFIG) for step in (89, 90, 91, 100)] == [False, False, True, True]


def problem(*losses: float) -> str:
    heldout = tuple((10 * number, loss) for number, loss in enumerate(losses, start=1))
    fingerprints = {"config_fingerprint": "", "data_fingerprint": ""}
    state = StepState(step=10 * len(losses), tokens_seen=0, vocabulary_size=67, heldout=heldout, **fingerprints)
    return heldout_problem(state, config=CONFIG, vocabulary_size=1000)


@pytest.mark.parametrize("losses", [(3.0, 2.5), (3.0, 3.0), (3.0, 3.59), (math.log(1000),), (1.0, 9.0, 8.0)])
def test_a_held_out_loss_near_the_one_before_is_sound(losses: tuple[float, ...]) -> None:
    assert problem(*losses) == ""


@pytest.mark.parametrize("losses", [(3.0, 3.61), (1.21 * math.log(1000),), (3.0, math.nan), (3.0, math.inf)])
def test_a_held_out_loss_that_has_risen_is_not(losses: tuple[float, ...]) -> None:
    found = problem(*losses)
    assert "pretrain.learning_rate" in found
    assert f"step {10 * len(losses)}" in found
