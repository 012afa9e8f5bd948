import pytest

from stages.pretrain.config import ModelConfig
from stages.pretrain.optimise.groups import decays, group_of, is_layer_matrix, weights
from tests.stages.pretrain.optimise import made


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("lm_head.weight", "head"),
        ("model.norm.weight", "norm"),
        ("model.layers.3.input_layernorm.weight", "norm"),
        ("model.layers.3.self_attn.q_norm.weight", "norm"),
        ("model.layers.3.self_attn.k_proj.bias", "attention"),
        ("model.layers.3.self_attn.o_proj.weight", "attention"),
        ("model.layers.3.mlp.gate_proj.weight", "feed_forward"),
    ],
)
def test_groups_follow_from_names(name: str, group: str) -> None:
    assert group_of(name) == group


def test_a_parameter_that_belongs_nowhere_is_not_passed_over() -> None:
    with pytest.raises(AssertionError, match="rotary"):
        group_of("model.rotary.weight")


def test_matrices_decay_norms_do_not_and_embeddings_do_by_choice() -> None:
    assert decays("model.layers.0.mlp.up_proj.weight", 2, decay_embeddings=False)
    assert decays("lm_head.weight", 2, decay_embeddings=False)
    assert not decays("model.norm.weight", 1, decay_embeddings=True)
    assert not decays("model.layers.0.self_attn.q_proj.bias", 1, decay_embeddings=True)
    assert decays("model.embed_tokens.weight", 2, decay_embeddings=True)
    assert not decays("model.embed_tokens.weight", 2, decay_embeddings=False)


def test_only_matrices_of_the_layers_are_for_muon() -> None:
    found = [name for name, shape in made.SHAPES.items() if is_layer_matrix(name, len(shape))]
    assert len(found) == 5 and all(name.endswith("_proj.weight") for name in found)


def test_with_a_lower_learning_rate_for_wide_matrices_decay_stays_what_it_is() -> None:
    """Maximal update parametrisation at four times the width of its base."""
    wide = ModelConfig(family="granite", hidden_size=24, num_heads=2, num_kv_heads=2, mup_base_hidden_size=6)
    found = {of.name: of for of in weights(made.config(), wide, made.model())}
    matrix, norm = found["model.layers.0.mlp.up_proj.weight"], found["model.norm.weight"]
    assert (matrix.learning_rate_ratio, norm.learning_rate_ratio) == (0.25, 1.0)
    assert matrix.learning_rate_ratio * matrix.decay == pytest.approx(0.1) and norm.decay == 0
    assert found["lm_head.weight"].learning_rate_ratio == 1.0 and found["lm_head.weight"].decay == 0.1
