import math

import pytest
import torch

from stages.pretrain.config import ModelConfig
from stages.pretrain.model.build import build, config_values, huggingface_config, initialise

WIDE = ModelConfig(hidden_size=96, num_layers=5, num_heads=6, num_kv_heads=2, intermediate_size=200, context_tokens=32)


def made(model: ModelConfig, *, seed: int) -> torch.nn.Module:
    shape = huggingface_config(model, vocabulary_size=1003, eos_id=2)
    llama = build(shape)
    initialise(llama, seed=seed, std=model.initializer_std, num_layers=model.num_layers)
    return llama


def test_weights_follow_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    one = made(WIDE, seed=3)
    torch.manual_seed(2)
    torch.rand(100)
    same, other = made(WIDE, seed=3), made(WIDE, seed=4)
    for (name, a), b, c in zip(one.named_parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert a.ndim == 1 or not torch.equal(a, c), name


def test_a_layer_does_not_depend_on_the_layers_around_it() -> None:
    shallow = made(WIDE.model_copy(update={"num_layers": 2}), seed=3)
    deep = made(WIDE, seed=3)
    name = "model.layers.1.self_attn.q_proj.weight"
    assert torch.equal(shallow.get_parameter(name), deep.get_parameter(name))


def test_output_projections_are_scaled_by_depth_and_norms_are_one() -> None:
    model = made(WIDE, seed=0)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
            continue
        scaled = name.endswith(("o_proj.weight", "down_proj.weight"))
        expected = 0.02 / math.sqrt(2 * 5) if scaled else 0.02
        assert parameter.std().item() == pytest.approx(expected, rel=0.05), name
        assert parameter.mean().item() == pytest.approx(0, abs=expected / 10), name


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_are_one_matrix_exactly_if_they_are_tied(tied: bool) -> None:
    model = made(WIDE.model_copy(update={"tie_embeddings": tied}), seed=0)
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
    assert ("lm_head.weight" in dict(model.named_parameters())) != tied


def test_config_json_says_what_was_built_and_no_version() -> None:
    shape = huggingface_config(WIDE, vocabulary_size=1003, eos_id=2)
    values = config_values(shape)
    assert "transformers_version" not in values
    wanted = {
        "model_type": "llama",
        "vocab_size": 1003,
        "num_key_value_heads": 2,
        "eos_token_id": 2,
        "bos_token_id": None,
        "max_position_embeddings": 32,
        "architectures": ["LlamaForCausalLM"],
    }
    assert {name: values[name] for name in wanted} == wanted
    again = build(type(shape)(**values))
    assert {n: p.shape for n, p in again.named_parameters()} == {n: p.shape for n, p in build(shape).named_parameters()}
