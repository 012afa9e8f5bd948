"""A user relies on: the plan's figures are those of the model that is then trained."""

from typing import Any

import numpy as np
import pytest

from data.errors import InputError
from data.order.batches import SampleOrder
from data.order.packing import make_packing
from stages.plan.schedule import disk, reading
from stages.pretrain.batches.phases import train_phases
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.model.counts import flops, parameters
from stages.pretrain.model.shape import FAMILIES, OF_FAMILIES

SHAPES = {
    "grouped queries, tied": ModelConfig(
        hidden_size=96, num_layers=3, num_heads=6, num_kv_heads=2, intermediate_size=250, tie_embeddings=True
    ),
    "all heads, untied": ModelConfig(
        hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=4, intermediate_size=172, tie_embeddings=False
    ),
}
# Every family, with heads of another width than hidden_size / num_heads and with biases, where it has them.
FAMILY_SHAPES = SHAPES | {
    family: ModelConfig(
        family=family,
        hidden_size=96,
        num_layers=3,
        num_heads=6,
        num_kv_heads=2,
        intermediate_size=250,
        head_dim=20 if family in OF_FAMILIES["head_dim"] else 0,
        attention_bias=family in OF_FAMILIES["attention_bias"],
        mlp_bias=family in OF_FAMILIES["mlp_bias"],
        mup_base_hidden_size=32 if family == "granite" else 0,
    )
    for family in FAMILIES
}
# As published: what a model of the family has of parameters, with how many rows of the vocabulary.
PUBLISHED: dict[str, tuple[int, int, dict[str, Any]]] = {
    "Llama 2 7B": (6_738_415_616, 32_000, {
        "hidden_size": 4096, "num_layers": 32, "num_heads": 32, "num_kv_heads": 32, "intermediate_size": 11008,
        "tie_embeddings": False,
    }),
    "Llama 3.2 1B": (1_235_814_400, 128_256, {
        "hidden_size": 2048, "num_layers": 16, "num_heads": 32, "num_kv_heads": 8, "intermediate_size": 8192,
    }),
    "Mistral 7B v0.3": (7_248_023_552, 32_768, {
        "family": "mistral", "hidden_size": 4096, "num_layers": 32, "num_heads": 32, "num_kv_heads": 8,
        "intermediate_size": 14336, "tie_embeddings": False,
    }),
    "Qwen2.5 0.5B": (494_032_768, 151_936, {
        "family": "qwen2", "hidden_size": 896, "num_layers": 24, "num_heads": 14, "num_kv_heads": 2,
        "intermediate_size": 4864,
    }),
    "Qwen3 0.6B": (596_049_920, 151_936, {
        "family": "qwen3", "hidden_size": 1024, "num_layers": 28, "num_heads": 16, "num_kv_heads": 8, "head_dim": 128,
        "intermediate_size": 3072,
    }),
}  # fmt: skip
VOCABULARY = 704


def build(shape: ModelConfig, attention: str = "sdpa"):  # type: ignore[no-untyped-def]
    from stages.pretrain.model.attention import implementation
    from stages.pretrain.model.build import build, huggingface_config
    from stages.pretrain.model.initialise import initialise

    model = build(huggingface_config(shape, vocabulary_size=VOCABULARY, eos_id=2), implementation(attention))
    initialise(model, shape, seed=1)
    return model


@pytest.mark.parametrize("shape", FAMILY_SHAPES.values(), ids=FAMILY_SHAPES)
def test_parameters_are_those_of_the_model(shape: ModelConfig) -> None:
    found = {name: parameter.numel() for name, parameter in build(shape).named_parameters()}
    count = parameters(shape, VOCABULARY)
    assert count.total == sum(found.values())
    layers = sum(number for name, number in found.items() if ".layers." in name)
    assert count.non_embedding == layers + shape.hidden_size
    assert count.norms == sum(number for name, number in found.items() if "norm" in name)
    assert count.biases == sum(number for name, number in found.items() if name.endswith("bias"))
    assert count.multiplied == sum(
        number for name, number in found.items() if "proj.weight" in name or name == "lm_head.weight"
    ) + (count.embedding if shape.tie_embeddings else 0)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_of_published_models(name: str) -> None:
    """Numbers on their model cards and in their reports."""
    published, vocabulary_size, settings = PUBLISHED[name]
    shape = ModelConfig.model_validate(settings)
    assert parameters(shape, vocabulary_size).total == published


def test_flops_of_a_token_are_about_six_for_each_parameter() -> None:
    published, vocabulary_size, settings = PUBLISHED["Llama 2 7B"]
    assert 0.95 < 6 * published / flops(ModelConfig(**settings), vocabulary_size, 1).matrices < 1.05


@pytest.mark.parametrize("shape", FAMILY_SHAPES.values(), ids=FAMILY_SHAPES)
def test_flops_are_those_that_torch_counts(shape: ModelConfig) -> None:
    """torch's counter leaves attention out where it is fused, so attention is computed by matrix products here."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = build(shape, "eager")
    rows, tokens = 2, 48
    with FlopCounterMode(display=False) as counter:
        logits = model(input_ids=torch.randint(3, VOCABULARY, (rows, tokens)), use_cache=False).logits
        logits.sum().backward()
    expected = flops(shape, VOCABULARY, tokens).per_token * rows * tokens
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.001)


def facts(**lengths: list[int]) -> dict[str, dict[str, Any]]:
    """What pretokenize says of domains with documents of these lengths."""
    return {
        domain: {
            "train_tokens": sum(found),
            "train_length_bits": [sum(length >> bit & 1 for length in found) for bit in range(12)],
        }
        for domain, found in lengths.items()
    }


DOMAINS = facts(a=[1001], b=[30, 25], unused=[900], empty=[])


def test_epochs_by_domain_and_warnings() -> None:
    pretrain = PretrainConfig(sequence_tokens=10, batch_sequences=4, num_steps=50, mixture={"a": 3, "b": 1})
    found = reading(pretrain, DOMAINS, most_epochs=4)
    assert set(found.domains) == {"a", "b"} and found.exact
    assert (found.domains["a"].sequences, found.domains["b"].sequences) == (101, 6)
    assert found.domains["a"].epochs == pytest.approx(50 * 4 * 0.75 / 101)
    (warning,) = found.warnings
    assert "'b' is read 8.3 times" in warning
    assert all(of.wanted_epochs == of.epochs for of in found.domains.values())
    for missing in ("x", "empty"):
        with pytest.raises(InputError, match=f"'{missing}'.*a, b, unused"):
            reading(pretrain.model_copy(update={"mixture": {missing: 1.0}}), DOMAINS, most_epochs=4)


def test_a_cap_on_epochs_is_in_the_plan() -> None:
    """b has 6 sequences; 200 are drawn."""
    pretrain = PretrainConfig(
        sequence_tokens=10, batch_sequences=4, num_steps=50, mixture={"a": 3, "b": 1}, mixture_most_epochs=4
    )
    found = reading(pretrain, DOMAINS, most_epochs=4)
    assert found.domains["b"].epochs == pytest.approx(4) and found.domains["b"].wanted_epochs == pytest.approx(50 / 6)
    assert found.domains["a"].weight == pytest.approx(176 / 200) and found.warnings == ()
    with pytest.raises(InputError, match=r"draws 2000 tokens.*mixture_most_epochs = 1 allows 1070 .*\(a 1010, b 60"):
        reading(pretrain.model_copy(update={"mixture_most_epochs": 1.0}), DOMAINS, most_epochs=4)


def test_epochs_under_a_schedule_are_those_of_all_phases() -> None:
    pretrain = PretrainConfig.model_validate(
        {
            **{"sequence_tokens": 10, "batch_sequences": 4, "num_steps": 50, "mixture": {"a": 3, "b": 1}},
            "mixture_schedule": [{"from_step": 31, "weights": {"a": 1}}, {"from_step": 90, "weights": {"b": 1}}],
        }
    )
    found = reading(pretrain, DOMAINS, most_epochs=40)
    assert found.domains["a"].epochs == pytest.approx((30 * 4 * 0.75 + 20 * 4) / 101)
    assert found.domains["b"].epochs == pytest.approx(30 * 4 * 0.25 / 6)
    assert found.domains["a"].weight == pytest.approx((30 * 0.75 + 20) / 50)
    (warning,) = found.warnings
    assert "from step 90 on has no effect" in warning


def test_a_plan_tells_of_tokens_that_are_never_read() -> None:
    pretrain = PretrainConfig.model_validate(
        {
            **{"packing": "length-buckets", "sequence_tokens": 64, "num_steps": 5, "mixture": {"a": 1}},
            "length_schedule": [{"from_step": 1, "longest_tokens": 16}],
        }
    )
    warnings = reading(pretrain, DOMAINS, most_epochs=1e9).warnings
    assert [warning for warning in warnings if "'a': 992 of 1001 tokens are never read" in warning]


def test_a_plan_tells_of_sequences_that_are_read_more_often_than_others() -> None:
    """One token in a million is its document's own sequence, and a batch of such comes up all the same."""
    settings = {"packing": "length-buckets", "sequence_tokens": 64, "batch_sequences": 1, "num_steps": 300_000}
    tiny = facts(a=[64] * 16_000 + [1])
    (warning,) = reading(PretrainConfig.model_validate(settings), tiny, most_epochs=1e9).warnings
    assert warning.startswith("domain 'a': its 1 sequence(s) of 1 token(s) are read 64.0 times")
    assert reading(PretrainConfig.model_validate(settings | {"num_steps": 300}), tiny, most_epochs=1e9).warnings == ()


@pytest.mark.parametrize("packing", ["stream", "best-fit", "length-buckets"])
@pytest.mark.parametrize("scheduled", [False, True])
def test_sequences_and_epochs_are_those_of_the_order(packing: str, scheduled: bool) -> None:
    """Against the real packing and the real order; what best-fit has to pad is not known before."""
    lengths = np.random.default_rng(3).integers(1, 150, 400)
    domains = facts(code=lengths[:150].tolist(), prose=lengths[150:].tolist())
    settings: dict[str, Any] = {"packing": packing, "sequence_tokens": 64, "batch_sequences": 6, "num_steps": 300}
    if scheduled:
        settings["mixture_schedule"] = [{"from_step": 101, "weights": {"code": 0.6, "prose": 0.4}}]
        if packing == "length-buckets":
            settings["length_schedule"] = [
                {"from_step": 1, "longest_tokens": 8},
                {"from_step": 51, "longest_tokens": 64},
            ]
    pretrain = PretrainConfig.model_validate(settings)
    found = reading(pretrain, domains, most_epochs=100)
    num_sequences = {
        domain: make_packing(
            pretrain.packing,
            num_tokens=int(mine.sum()),
            document_lengths=lambda mine=mine: mine,  # type: ignore[misc]
            sequence_tokens=64,
        ).num_sequences
        for domain, mine in (("code", lengths[:150]), ("prose", lengths[150:]))
    }
    phases = train_phases(pretrain, {d: of["train_tokens"] for d, of in domains.items()}, num_sequences).phases
    order = SampleOrder(seed=1, num_sequences=num_sequences, phases=phases)
    read = order.samples_before(300)
    for domain, pools in num_sequences.items():
        of = found.domains[domain]
        assert of.sequences == sum(pools.values()) if found.exact else of.sequences <= sum(pools.values())
        epochs = max(read[domain, length] / count for length, count in pools.items())
        assert epochs == pytest.approx(of.epochs, rel=0.15 if packing == "length-buckets" else 0.05)
    assert found.exact == (packing != "best-fit")


def test_disk_holds_durable_and_local_checkpoints() -> None:
    found = disk(PretrainConfig(num_steps=1000, checkpoint_every_steps=300, keep_local=2), 12_000_000)
    assert (found.bytes_each, found.durable, found.total_bytes) == (12_000_000, 4, 8 * 12_000_000)
    assert (found.remote, found.remote_bytes) == (3, 3 * 12_000_000), "two newest and the best one"
