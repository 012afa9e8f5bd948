"""A user relies on: the plan's figures are those of the model that is then trained."""

from typing import Any, Literal

import numpy as np
import pytest

from data.errors import InputError
from data.order import SampleOrder
from data.packing import make_packing
from stages.plan.compute import flops, parameters
from stages.plan.memory import (
    activation_bytes_per_token,
    logit_bytes_per_token,
    mask_bytes_per_token,
    memory,
    weight_copies,
)
from stages.plan.schedule import disk, reading
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.phases import train_phases

SHAPES = {
    "grouped queries, tied": ModelConfig(
        hidden_size=96, num_layers=3, num_heads=6, num_kv_heads=2, intermediate_size=250, tie_embeddings=True
    ),
    "all heads, untied": ModelConfig(
        hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=4, intermediate_size=172, tie_embeddings=False
    ),
}
VOCABULARY = 704


def build(shape: ModelConfig, attention: str = "sdpa"):  # type: ignore[no-untyped-def]
    from stages.pretrain.model import build, huggingface_config, initialise

    model = build(huggingface_config(shape, vocabulary_size=VOCABULARY, eos_id=2), attention)
    initialise(model, seed=1, std=shape.initializer_std, num_layers=shape.num_layers)
    return model


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_parameters_are_those_of_the_model(shape: ModelConfig) -> None:
    model = build(shape)
    count = parameters(shape, VOCABULARY)
    assert count.total == sum(parameter.numel() for parameter in model.parameters())
    layers = sum(parameter.numel() for name, parameter in model.named_parameters() if ".layers." in name)
    assert count.non_embedding == layers + shape.hidden_size


def test_parameters_of_a_published_model() -> None:
    """Llama 2 7B (Touvron et al., 2023): 6,738,415,616 parameters."""
    shape = ModelConfig(
        hidden_size=4096, num_layers=32, num_heads=32, num_kv_heads=32, intermediate_size=11008, tie_embeddings=False,
        context_tokens=4096,
    )  # fmt: skip
    count = parameters(shape, 32_000)
    assert count.total == 6_738_415_616
    assert 0.95 < 6 * count.total / flops(shape, 32_000, 1).matrices < 1.05


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
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


@pytest.mark.parametrize(
    ("attention", "across"), [("sdpa", False), ("sdpa", True), ("eager", False), ("eager", True), ("flex", False)]
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_activations_are_what_autograd_keeps(
    shape: ModelConfig, precision: Literal["fp32", "bf16"], attention: Literal["sdpa", "eager", "flex"], across: bool
) -> None:
    """flex_attention has no backward pass on a CPU, and its count is checked as far as it is that of another one."""
    import torch

    from stages.pretrain.attention import Attention
    from stages.pretrain.feed import Rows
    from stages.pretrain.loop import summed_loss

    pretrain = PretrainConfig(
        precision=precision, attention=attention, cross_document_attention=across, sequence_tokens=128
    )
    if attention == "flex":
        shared = pretrain.model_copy(update={"attention": "sdpa", "cross_document_attention": True})
        repeated = 0
        if shape.num_heads == 6:  # no power of two, so transformers spreads the two key-value heads over six
            repeated = shape.num_layers * 2 * 4 * shape.head_size * (2 if precision == "bf16" else 4)
        assert activation_bytes_per_token(shape, pretrain) == activation_bytes_per_token(shape, shared) + repeated
        return
    model = build(shape, attention)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = tensor
        return tensor

    ids = torch.randint(3, VOCABULARY, (4, 128))
    positions = torch.arange(128, dtype=torch.int32).repeat(4, 1)
    if not across:
        positions[:, 50:] -= 50
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        summed_loss(
            model,
            Rows(inputs=ids, targets=ids, positions=positions),
            attention=Attention(attention, not across, dtype),
            vocabulary_size=VOCABULARY,
        )
    num_bytes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    log_softmax = 4 * VOCABULARY
    per_token = activation_bytes_per_token(shape, pretrain) + log_softmax
    assert num_bytes == pytest.approx(ids.numel() * per_token + weight_copies(shape, pretrain, VOCABULARY), rel=0.01)
    assert logit_bytes_per_token(VOCABULARY, precision) >= 2 * log_softmax


def test_a_mask_takes_the_square_of_the_sequence_and_only_where_there_is_one() -> None:
    def mask(**settings: Any) -> int:
        return mask_bytes_per_token(PretrainConfig(sequence_tokens=256, **settings))

    assert mask() == 256 and mask(attention="flex", device="cuda") == 256
    assert mask(cross_document_attention=True) == mask(packing="length-buckets") == 0
    assert mask(attention="eager", precision="fp32", packing="length-buckets") == 5 * 256
    model = ModelConfig()
    kept = [
        activation_bytes_per_token(model, PretrainConfig(sequence_tokens=256, cross_document_attention=across))
        for across in (False, True)
    ]
    assert kept[0] - kept[1] == 2 * 256, "in bf16, once for all layers"


def test_memory_is_shared_by_processes_and_bounded_by_the_micro_batch() -> None:
    shape = SHAPES["grouped queries, tied"]
    one = memory(shape, PretrainConfig(batch_sequences=8, micro_batch_sequences=4, precision="fp32"), VOCABULARY)
    total = parameters(shape, VOCABULARY).total
    assert (one.weights, one.gradients, one.optimizer, one.copies) == (4 * total, 4 * total, 8 * total, 0)
    three = memory(
        shape,
        PretrainConfig(batch_sequences=8, micro_batch_sequences=4, precision="fp32", num_processes=3),
        VOCABULARY,
    )
    assert three.weights == 4 * -(-total // 3) and three.copies > 0
    assert three.activations * 4 == one.activations * 3, "a third of 8 sequences is at most 3"
    whole = memory(shape, PretrainConfig(batch_sequences=8, micro_batch_sequences=100, precision="fp32"), VOCABULARY)
    assert whole.activations == 2 * one.activations and whole.total > one.total


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
    for missing in ("x", "empty"):
        with pytest.raises(InputError, match=f"'{missing}'.*a, b, unused"):
            reading(pretrain.model_copy(update={"mixture": {missing: 1.0}}), DOMAINS, most_epochs=4)


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
    order = SampleOrder(seed=1, num_sequences=num_sequences, phases=phases, batch_tokens=6 * 64)
    read = order.samples_before(300)
    for domain, pools in num_sequences.items():
        of = found.domains[domain]
        assert of.sequences == sum(pools.values()) if found.exact else of.sequences <= sum(pools.values())
        epochs = max(read[domain, length] / count for length, count in pools.items())
        assert epochs == pytest.approx(of.epochs, rel=0.15 if packing == "length-buckets" else 0.05)
    assert found.exact == (packing != "best-fit")


def test_disk_holds_durable_and_local_checkpoints() -> None:
    found = disk(PretrainConfig(num_steps=1000, checkpoint_every_steps=300, keep_local=2), 1_000_000)
    assert (found.bytes_each, found.durable, found.total_bytes) == (12_000_000, 4, 8 * 12_000_000)
