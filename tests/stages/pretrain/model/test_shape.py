"""A user relies on: a shape that cannot be built, or a setting that would do nothing, is refused by its name."""

from typing import Any

import pytest
from pydantic import ValidationError

from stages.fingerprint import digest
from stages.pretrain.model.shape import FAMILIES, MULTIPLIERS, ModelConfig

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64} | {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({"hidden_size": 130, "num_heads": 4}, ["model.hidden_size", "model.num_heads"]),
        ({"hidden_size": 9, "num_heads": 3}, ["model.hidden_size", "even"]),
        ({"head_dim": 9, "family": "qwen3"}, ["model.head_dim", "even"]),
        ({"num_heads": 4, "num_kv_heads": 3}, ["model.num_heads", "model.num_kv_heads"]),
        ({"hidden_size": 130, "num_heads": 4, "head_dim": 32}, ["model.hidden_size", "model.num_heads"]),
        ({"family": "mamba"}, ["family", "granite"]),
        ({"rope_scaling": {"factor": 2.0}}, ["model.rope_scaling", "rope_type = None"]),
        ({"rope_scaling": {"rope_type": "ntk"}}, ["model.rope_scaling", "'ntk'", "yarn"]),
        ({"rope_scaling": {"rope_type": "linear"}}, ["model.rope_scaling", "needs factor"]),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, ["factor = 0.5", "at least 1"]),
        ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, ["factor = '2'"]),
        ({"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 999}}, ["= 999", "model.context_tokens = 256"]),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 0.0}}, ["low_freq_factor = 0.0", "above 0"]),
        ({"rope_scaling": LLAMA3 | {"beta_fast": 32}}, ["beta_fast has no effect", "llama3"]),
        (
            {"rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 64, "short_factor": [1.0]}},
            ["needs long_factor"],
        ),
    ],
)
def test_an_impossible_shape_names_the_settings(model: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(ValidationError) as error:
        ModelConfig(**model)
    assert all(name in str(error.value) for name in names), error.value


@pytest.mark.parametrize("family", FAMILIES)
def test_a_setting_of_another_family_is_refused(family: str) -> None:
    settings: dict[str, Any] = {
        "head_dim": 32,
        "attention_bias": True,
        "mlp_bias": True,
        "mup_base_hidden_size": 64,
        **dict.fromkeys(MULTIPLIERS, 2.0),
    }
    taken = {
        "llama": {"head_dim", "attention_bias", "mlp_bias"},
        "mistral": {"head_dim"},
        "qwen2": set(),
        "qwen3": {"head_dim", "attention_bias"},
        "granite": {"attention_bias", "mlp_bias", "mup_base_hidden_size", *MULTIPLIERS},
    }
    for name, value in settings.items():
        values = {"family": family, name: value}
        if name in taken[family]:
            assert getattr(ModelConfig.model_validate(values), name) == value
        else:
            with pytest.raises(ValidationError, match=f"model.{name} has no effect with model.family"):
                ModelConfig.model_validate(values)


def test_a_field_beside_a_huggingface_config_is_refused() -> None:
    with pytest.raises(ValidationError, match="model.num_layers has no effect with model.huggingface_config"):
        ModelConfig(huggingface_config="config.json", num_layers=3)
    shape = ModelConfig(huggingface_config="config.json")
    assert ModelConfig.model_validate(shape.model_dump()) == shape, "as a manifest writes and reads it"


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "qwen3"},
        {"head_dim": 32},
        {"attention_bias": True},
        {"rope_scaling": LLAMA3},
        {"family": "granite", "residual_multiplier": 0.5},
        {"family": "granite", "mup_base_hidden_size": 64},
    ],
)
def test_what_changes_the_model_is_identity(changes: dict[str, Any]) -> None:
    changed = ModelConfig.model_validate(changes)
    base = ModelConfig.model_validate({"family": changes["family"]} if len(changes) > 1 else {})
    assert digest(changed) != digest(base)


def test_widths_follow_from_one_another() -> None:
    assert ModelConfig().head_size == 64 and ModelConfig(head_dim=32).head_size == 32
    assert ModelConfig().width_ratio == 1.0
    assert ModelConfig(family="granite", mup_base_hidden_size=32).width_ratio == 4.0
    assert [ModelConfig(family=family).input_bias for family in FAMILIES] == [family == "qwen2" for family in FAMILIES]
