"""A user relies on: what is trained is the model of transformers that the shape names, and config.json says so."""

from typing import Any

import pytest
import torch

from stages.pretrain.model.attention import Attention, implementation
from stages.pretrain.model.build import build, config_of, config_values, decoder_layers, huggingface_config, trimmed
from stages.pretrain.model.initialise import initialise
from stages.pretrain.model.shape import FAMILIES, Family, ModelConfig

WIDE = ModelConfig(hidden_size=96, num_layers=5, num_heads=6, num_kv_heads=2, intermediate_size=200, context_tokens=32)
IDS = torch.arange(2 * 13).reshape(2, 13)


def of(family: Family, **changes: Any) -> ModelConfig:
    return ModelConfig.model_validate({**WIDE.model_dump(), "family": family, **changes})


def made(shape: ModelConfig, **settings: Any) -> Any:
    built = build(huggingface_config(shape, vocabulary_size=1003, eos_id=2), **settings)
    initialise(built, shape, seed=0)
    return built


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_are_one_matrix_exactly_if_they_are_tied(tied: bool) -> None:
    model = made(of("llama", tie_embeddings=tied))
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


@pytest.mark.parametrize("family", FAMILIES)
def test_config_json_is_enough_to_build_the_same_model(family: Family) -> None:
    more = {"residual_multiplier": 0.5, "mup_base_hidden_size": 48} if family == "granite" else {}
    shape = of(family, head_dim=20 if family in ("mistral", "qwen3") else 0, **more)
    first = made(shape)
    values = config_values(first.config)
    again = build(config_of(values))
    assert config_values(again.config) == values
    assert type(again).__name__ == values["architectures"][0] and again.config.model_type == family
    again.load_state_dict(first.state_dict())
    with torch.no_grad():
        assert torch.equal(again(input_ids=IDS).logits, first(input_ids=IDS).logits)


def test_families_are_what_they_say() -> None:
    """What distinguishes each from llama is there."""
    names = {family: {name for name, _ in made(of(family)).named_parameters()} for family in FAMILIES}
    assert names["mistral"] == names["granite"] == names["llama"]
    layer = "model.layers.0.self_attn"
    assert {f"{layer}.{which}_proj.bias" for which in "qkv"} <= names["qwen2"]
    assert f"{layer}.o_proj.bias" not in names["qwen2"]
    assert {f"{layer}.q_norm.weight", f"{layer}.k_norm.weight"} <= names["qwen3"]
    biased = {name for name, _ in made(of("granite", attention_bias=True, mlp_bias=True)).named_parameters()}
    assert {f"{layer}.o_proj.bias", "model.layers.4.mlp.down_proj.bias"} <= biased


def test_granite_without_multipliers_is_llama_and_each_multiplier_counts() -> None:
    llama = made(of("llama", initializer_std=0.1))
    with torch.no_grad():
        wanted = llama(input_ids=IDS).logits
        assert torch.equal(made(of("granite", initializer_std=0.1))(input_ids=IDS).logits, wanted)
        for name in ("embedding_multiplier", "attention_multiplier", "residual_multiplier"):
            other = made(of("granite", initializer_std=0.1, **{name: 2.0}))(input_ids=IDS).logits
            assert not torch.allclose(other, wanted, atol=1e-3), name
        divided = made(of("granite", initializer_std=0.1, logits_scaling=4.0))(input_ids=IDS).logits
        assert torch.allclose(divided * 4, wanted)


def test_the_multipliers_of_maximal_update_parametrisation_follow_the_width() -> None:
    shape = of("granite", mup_base_hidden_size=48, logits_scaling=3.0)
    config = huggingface_config(shape, vocabulary_size=1003, eos_id=2)
    assert config.logits_scaling == 6.0 and config.attention_multiplier == 1 / 16
    given = of("granite", mup_base_hidden_size=48, attention_multiplier=0.3)
    assert huggingface_config(given, vocabulary_size=1003, eos_id=2).attention_multiplier == 0.3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_to_train_computes_the_same_and_generates(family: Family) -> None:
    shape = of(family, initializer_std=0.1)
    plain, trains = made(shape), made(shape, trains=True)
    assert type(plain).__name__ == type(trains).__name__ and isinstance(trains, type(plain))
    with torch.no_grad():
        assert torch.equal(plain(input_ids=IDS).logits, trains(input_ids=IDS).logits)
    assert len(decoder_layers(trains)) == 5


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_documents_of_a_row_are_apart_in_every_family(family: Family, backend: str) -> None:
    """With scores of attention that are scaled in a way of their own, where the family has one."""
    more = {"attention_multiplier": 0.4} if family == "granite" else {}
    model = made(of(family, initializer_std=0.1, **more), implementation=implementation(backend), trains=True)
    how, positions = Attention(backend, True, torch.float32), torch.cat([torch.arange(5), torch.arange(8)]).repeat(2, 1)
    with torch.no_grad():
        packed = model(input_ids=IDS, use_cache=False, **how.arguments(positions)).logits
        plain = build(model.config)
        plain.load_state_dict(model.state_dict())
        for part in (slice(5), slice(5, 13)):
            assert torch.allclose(plain(input_ids=IDS[:, part]).logits, packed[:, part], atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_that_only_pad_are_cut_and_nothing_else(family: Family) -> None:
    padded = made(of(family, tie_embeddings=family == "llama"))
    small = trimmed(padded, 990)
    assert small.config.vocab_size == 990 and type(small) is type(padded)
    with torch.no_grad():
        assert torch.equal(small(input_ids=IDS).logits, padded(input_ids=IDS).logits[..., :990])
