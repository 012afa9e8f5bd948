"""A user relies on: the plan's figures are those of the model that is then trained."""

import pytest

from data.errors import InputError
from stages.plan.compute import flops, parameters
from stages.plan.memory import activation_bytes_per_token, logit_bytes_per_token, memory, weight_copies
from stages.plan.schedule import disk, reading
from stages.pretrain.config import ModelConfig, PretrainConfig

SHAPES = {
    "grouped queries, tied": ModelConfig(
        hidden_size=96, num_layers=3, num_heads=6, num_kv_heads=2, intermediate_size=250, tie_embeddings=True
    ),
    "all heads, untied": ModelConfig(
        hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=4, intermediate_size=172, tie_embeddings=False
    ),
}
VOCABULARY = 704


def build(shape: ModelConfig):  # type: ignore[no-untyped-def]
    from stages.pretrain.model import build, huggingface_config, initialise

    model = build(huggingface_config(shape, vocabulary_size=VOCABULARY, eos_id=2))
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

    model = build(shape)
    model.config._attn_implementation = "eager"
    rows, tokens = 2, 48
    with FlopCounterMode(display=False) as counter:
        logits = model(input_ids=torch.randint(3, VOCABULARY, (rows, tokens)), use_cache=False).logits
        logits.sum().backward()
    expected = flops(shape, VOCABULARY, tokens).per_token * rows * tokens
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_activations_are_what_autograd_keeps(shape: ModelConfig, precision: str) -> None:
    import torch

    from stages.pretrain.loop import summed_loss

    model = build(shape)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = tensor
        return tensor

    ids = torch.randint(3, VOCABULARY, (4, 128))
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        summed_loss(model, ids, ids)
    num_bytes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    pretrain = PretrainConfig(precision=precision, num_processes=1)  # type: ignore[arg-type]
    log_softmax = 4 * VOCABULARY
    per_token = activation_bytes_per_token(shape, precision) + log_softmax
    assert num_bytes == pytest.approx(ids.numel() * per_token + weight_copies(shape, pretrain, VOCABULARY), rel=0.01)
    assert logit_bytes_per_token(VOCABULARY, precision) >= 2 * log_softmax


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


def test_epochs_by_domain_and_warnings() -> None:
    pretrain = PretrainConfig(sequence_tokens=10, batch_sequences=4, num_steps=50, mixture={"a": 3, "b": 1, "c": 1})
    found = reading(pretrain, {"a": 1001, "b": 55, "c": 4, "unused": 900}, most_epochs=4)
    assert set(found.domains) == {"a", "b"}
    assert (found.domains["a"].sequences, found.domains["b"].sequences) == (100, 5)
    assert found.domains["a"].epochs == pytest.approx(50 * 4 * 0.75 / 100)
    assert found.domains["b"].epochs == pytest.approx(50 * 4 * 0.25 / 5)
    assert len(found.warnings) == 2
    assert "'c'" in found.warnings[0] and "'b' is read 10.0 times" in found.warnings[1]
    with pytest.raises(InputError, match="'x'.*a, b"):
        reading(pretrain.model_copy(update={"mixture": {"x": 1.0}}), {"a": 1001, "b": 55}, most_epochs=4)


def test_disk_holds_durable_and_local_checkpoints() -> None:
    found = disk(PretrainConfig(num_steps=1000, checkpoint_every_steps=300, keep_local=2), 1_000_000)
    assert (found.bytes_each, found.durable, found.total_bytes) == (12_000_000, 4, 8 * 12_000_000)
