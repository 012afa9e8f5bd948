"""A user relies on: whatever the optimizer keeps is in the checkpoint, and a resumed training goes on bitwise."""

from typing import Any

import pytest
import torch

from stages.pretrain.checkpoints.checkpoint import load_model, step_name
from stages.pretrain.checkpoints.tensors import here, state_digest
from stages.pretrain.step import Training
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build
from tests.stages.pretrain.one_step import one_step

RAMP = [{"from_step": 3, "batch_sequences": 9}]


def steps(training: Training, numbers: range) -> list[tuple[float | None, float | None, int]]:
    found = [one_step(training, step=step) for step in numbers]
    return [(result.loss, result.gradient_norm, result.tokens) for result in found]


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "muon", "ema_decay": 0.9, "batch_ramp": RAMP, "schedule": "wsd", "schedule_unit": "tokens"},
        {"optimizer_states": "8bit", "ema_decay": 0.9, "schedule": "linear"},
    ],
    ids=["muon", "8bit"],
)
def test_a_resumed_training_makes_the_steps_of_one_that_was_not_disturbed(
    build: Build, settings: dict[str, Any]
) -> None:
    config = micro.config(num_steps=5, checkpoint_every_steps=5, **settings)
    training, state = build(config)
    steps(training, range(1, 3))
    state = state.model_copy(update={"step": 2})
    training.saver.begin(training.tensors(), state, durable=False)
    training.saver.finish()
    averaged = {name: tensor.clone() for name, tensor in here(training.tensors()).items() if name.startswith("ema.")}
    expected = steps(training, range(3, 6))
    digest = state_digest(training.tensors(), {})

    resumed, _ = build(config, resume_step=2)
    assert steps(resumed, range(3, 6)) == expected
    assert state_digest(resumed.tensors(), {}) == digest
    assert expected[0][2] > 100 if "batch_ramp" in settings else expected[0][2] <= 96, "the batch has grown"

    evaluated = load_model(training.checkpoints / step_name(2))
    for name, parameter in evaluated.named_parameters():
        average = averaged[f"ema.{name}"][: len(parameter)]
        assert torch.equal(parameter, average), "what is evaluated is the average"
        assert not torch.equal(parameter, dict(training.model.named_parameters())[name][: len(parameter)])
