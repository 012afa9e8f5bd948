"""A user relies on: the plan's figures are those of the model that is then trained."""

import weakref
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from data.errors import InputError
from data.order.batches import SampleOrder
from data.order.packing import make_packing
from stages.plan.compute import flops, parameters
from stages.plan.memory import (
    activation_bytes_per_token,
    logit_bytes_per_token,
    mask_bytes_per_token,
    memory,
    weight_copies,
)
from stages.plan.schedule import disk, reading
from stages.pretrain.batches.phases import train_phases
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


def build(shape: ModelConfig, attention: str = "sdpa"):  # type: ignore[no-untyped-def]
    from stages.pretrain.model.attention import implementation
    from stages.pretrain.model.build import build, huggingface_config, initialise

    model = build(huggingface_config(shape, vocabulary_size=VOCABULARY, eos_id=2), implementation(attention))
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


@pytest.fixture
def flex_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """flex_attention refuses gradients on a CPU, where it has no backward pass; what its forward pass keeps for one is
    what it keeps on a GPU."""
    import torch
    from torch.nn.attention import flex_attention

    assert hasattr(flex_attention, "_validate_device")
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *tensors: None)
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize(
    ("attention", "across"),
    [("sdpa", False), ("sdpa", True), ("eager", False), ("eager", True), ("flex", False), ("flex", True)],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_activations_are_what_autograd_keeps(
    shape: ModelConfig,
    precision: Literal["fp32", "bf16"],
    attention: Literal["sdpa", "eager", "flex"],
    across: bool,
    flex_on_a_cpu: None,
) -> None:
    import torch

    from stages.pretrain.batches.feed import Rows
    from stages.pretrain.loop import summed_loss
    from stages.pretrain.model.attention import Attention

    pretrain = PretrainConfig(
        precision=precision, attention=attention, cross_document_attention=across, sequence_tokens=128
    )
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


class Held(TorchDispatchMode):
    """Bytes of all tensors that operations make, as long as they live. peak_bytes: the most at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = self.peak_bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), settings: Any = None) -> Any:
        made = operation(*arguments, **(settings or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._known:
                self._known.add(storage._cdata)
                self.num_bytes += storage.nbytes()
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)
        return made

    def _freed(self, storage: int, num_bytes: int) -> None:
        self._known.remove(storage)
        self.num_bytes -= num_bytes


@pytest.mark.parametrize("tokens", [1000, 2048, 6000])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("attention", ["sdpa", "eager", "flex"])
def test_a_mask_takes_what_is_planned_for_it(attention: str, precision: str, tokens: int) -> None:
    import torch

    from stages.pretrain.model.attention import Attention

    settings = {"sequence_tokens": tokens, "attention": attention, "precision": precision}
    pretrain = PretrainConfig.model_validate({**settings, "model": {"context_tokens": tokens}})
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    positions = torch.arange(tokens, dtype=torch.int32)[None].clone()
    positions[:, 600:] -= 600
    with Held() as held:
        Attention(attention, True, dtype).arguments(positions)
    planned = mask_bytes_per_token(pretrain) + (tokens * dtype.itemsize if attention == "sdpa" else 0)
    assert held.peak_bytes / tokens == pytest.approx(planned, rel=0.1 if attention == "flex" else 0.01)


def test_only_flex_has_no_mask_of_tokens_by_tokens_and_what_isolates_nothing_none_at_all() -> None:
    def mask(**settings: Any) -> int:
        return mask_bytes_per_token(PretrainConfig(sequence_tokens=256, **settings))

    assert mask() == 256 and mask(attention="flex", device="cuda") == 10
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
