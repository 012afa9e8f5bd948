from typing import Any

import pytest
from pydantic import ValidationError

from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import data_fingerprint


def ramp(*phases: tuple[int, int]) -> dict[str, Any]:
    return {"batch_ramp": [{"from_step": step, "batch_sequences": size} for step, size in phases]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "wsd", "warmup_ratio": 0.5, "decay_ratio": 0.6}, "warmup_ratio = 0.5 and pretrain.decay_ratio"),
        ({"decay_ratio": 0.3}, 'pretrain.decay_ratio has no effect without pretrain.schedule = "wsd"'),
        ({"decay_shape": "linear"}, 'pretrain.decay_shape has no effect without pretrain.schedule = "wsd"'),
        ({"muon_momentum": 0.9}, 'pretrain.muon_momentum has no effect without pretrain.optimizer = "muon"'),
        ({"schedule": "constant", "final_learning_rate_ratio": 0.2}, "final_learning_rate_ratio has no effect"),
        ({"schedule_unit": "tokens"}, 'schedule_unit = "tokens" has no effect without pretrain.batch_ramp'),
        (ramp((9, 16), (9, 32)), r"pretrain.batch_ramp: from_step must rise from phase to phase, not \[9, 9\]"),
        (ramp((1, 16)), "batch_ramp.0.from_step"),
        (ramp((9, 2)) | {"num_processes": 3}, "num_processes = 3 is more than .* a phase of pretrain.batch_ramp, 2: "),
        ({"batch_sequences": 2, "num_processes": 3}, "num_processes = 3 is more than pretrain.batch_sequences, 2: "),
        ({"ema_decay": 1.0}, "ema_decay"),
    ],
)
def test_a_refusal_names_the_setting_to_change(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PretrainConfig.model_validate(settings)


def test_places_are_those_of_the_batches() -> None:
    config = PretrainConfig.model_validate(
        {"num_steps": 20, "batch_sequences": 4, "sequence_tokens": 16} | ramp((6, 8), (11, 5), (30, 100))
    )
    places = [config.batch_places(step) for step in range(1, 21)]
    assert places == [64] * 5 + [128] * 5 + [80] * 10
    assert config.total_places == sum(places)
    assert [config.sequences_through(step) * 16 for step in range(1, 21)] == [sum(places[:n]) for n in range(1, 21)]


def test_the_ramp_decides_on_the_data() -> None:
    config = PretrainConfig()
    assert data_fingerprint(config, "x") != data_fingerprint(PretrainConfig.model_validate(ramp((6, 8))), "x")
