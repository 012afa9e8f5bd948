"""A user relies on: the first weights follow from the seed and the shape alone, and a model that was built without
memory is the one that would have been built with it.
"""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from stages.pretrain.model.build import build, huggingface_config
from stages.pretrain.model.initialise import HIDDEN_MATRICES, allocate, initialise, lr_multiplier, materialise
from stages.pretrain.model.shape import FAMILIES, Family, ModelConfig
from tests.stages.pretrain.forked import run_ranks
from tests.stages.pretrain.model.sharded import run_rank, shape

WIDE = ModelConfig(hidden_size=96, num_layers=5, num_heads=6, num_kv_heads=2, intermediate_size=200, context_tokens=32)


def made(model: ModelConfig, *, seed: int) -> torch.nn.Module:
    built = build(huggingface_config(model, vocabulary_size=1003, eos_id=2))
    initialise(built, model, seed=seed)
    return built


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


@pytest.mark.parametrize("family", FAMILIES)
def test_output_projections_are_scaled_by_depth_norms_are_one_and_biases_nothing(family: Family) -> None:
    model = made(WIDE.model_copy(update={"family": family}), seed=0)
    seen = set()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            value = 0.0 if name.endswith("bias") else 1.0
            assert torch.equal(parameter, torch.full_like(parameter, value)), name
            seen.add(value)
            continue
        scaled = name.endswith(("o_proj.weight", "down_proj.weight"))
        expected = 0.02 / math.sqrt(2 * 5) if scaled else 0.02
        assert parameter.std().item() == pytest.approx(expected, rel=0.05), name
        assert parameter.mean().item() == pytest.approx(0, abs=expected / 10), name
    assert seen == ({0.0, 1.0} if family == "qwen2" else {1.0})


def test_known_values_stay() -> None:
    """Another draw, or another order of drawing, would change these."""
    model = made(WIDE, seed=3)
    names = ("model.embed_tokens.weight", "model.layers.4.mlp.down_proj.weight")
    assert [model.get_parameter(name)[0, 0].item() for name in names] == pytest.approx(
        [0.00610776711255312, 0.0033703409135341644], rel=1e-6
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_memory_becomes_the_one_that_has_it(family: Family) -> None:
    """Memory is filled with NaN before: what is not set shows."""
    wanted = shape(family, tied=True)
    config = huggingface_config(wanted, vocabulary_size=1003, eos_id=2)
    direct = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    initialise(direct, wanted, seed=3)
    model = build(config, device="meta", trains=True)
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    materialise(model, shape=wanted, seed=3, device="cpu")
    assert dict(model.named_buffers()), "there are rotary frequencies"
    for ours, theirs in ((model.named_parameters(), direct.parameters()), (model.named_buffers(), direct.buffers())):
        for (name, tensor), other in zip(ours, theirs, strict=True):
            assert torch.equal(tensor, other) and tensor.dtype == torch.float32, name
    assert model.lm_head.weight is model.model.embed_tokens.weight
    ids = torch.arange(20)[None]
    assert torch.equal(model(input_ids=ids).logits, direct(input_ids=ids).logits)


def test_what_is_allocated_and_not_set_shows() -> None:
    model = build(huggingface_config(WIDE, vocabulary_size=1003, eos_id=2), device="meta")
    allocate(model, "cpu")
    assert all(parameter.isnan().all() for parameter in model.parameters())
    assert all(buffer.isfinite().all() for buffer in model.buffers())


STRETCHED: dict[str, dict[str, object]] = {
    "linear": {"factor": 3},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 8},
    "longrope": {"factor": 4.0, "original_max_position_embeddings": 8} | {
        "short_factor": [1.0] * 8, "long_factor": [1.5] * 8,
    },
    "llama3": {"factor": 4.0, "original_max_position_embeddings": 8, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", STRETCHED)
def test_stretched_frequencies_are_those_of_transformers(kind: str) -> None:
    rope = {"rope_type": kind, **STRETCHED[kind]}
    wanted = ModelConfig.model_validate({**WIDE.model_dump(), "rope_scaling": rope})
    config = huggingface_config(wanted, vocabulary_size=1003, eos_id=2)
    direct = AutoModelForCausalLM.from_config(config)
    initialise(direct, wanted, seed=3)
    model = build(config, device="meta")
    materialise(model, shape=wanted, seed=3, device="cpu")
    ids = torch.arange(40)[None]  # more than the context, where a dynamic scaling begins
    with torch.no_grad():
        found = model(input_ids=ids).logits
        assert torch.equal(found, direct(input_ids=ids).logits)
        assert not torch.allclose(found, made(WIDE, seed=3)(input_ids=ids).logits, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("families", "replicas", "shards"), [(FAMILIES, 1, 3), (("llama",), 2, 2)])
def test_every_rank_has_its_shard_of_the_same_model(
    families: tuple[Family, ...], replicas: int, shards: int, tmp_path: Path
) -> None:
    """Three ranks divide few of the sizes, and four hold two copies."""
    run_ranks(run_rank, families, replicas, shards, size=replicas * shards, log=tmp_path / "log")


def test_the_learning_rate_of_matrices_alone_follows_the_width() -> None:
    wanted = shape("granite", tied=False)
    model = build(huggingface_config(wanted, vocabulary_size=1003, eos_id=2), device="meta")
    found = {name: lr_multiplier(wanted, name) for name, _ in model.named_parameters()}
    hidden = {name for name in found if "_proj" in name}
    assert len(hidden) == 7 * wanted.num_layers and len(HIDDEN_MATRICES) == 7
    assert {found[name] for name in hidden} == {1 / 3}
    assert {found[name] for name in found.keys() - hidden} == {1.0}
    standard = wanted.model_copy(update={"mup_base_hidden_size": 0})
    assert {lr_multiplier(standard, name) for name in found} == {1.0}
