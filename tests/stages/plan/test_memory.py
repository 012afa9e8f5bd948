"""A user relies on: the memory that the plan tells of is what the training holds."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from stages.plan.activations import (
    activation_bytes_per_token,
    compute_bytes,
    layer_bytes_per_token,
    mask_bytes_per_token,
    residual_bytes,
)
from stages.plan.memory import loss_bytes, memory, weight_copies
from stages.plan.states import all_state_bytes, held_state_bytes
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.memory import recompute
from stages.pretrain.memory.precision import mixed_precision, precision_of
from stages.pretrain.model.attention import Attention, implementation
from stages.pretrain.model.build import build, decoder_layers, huggingface_config
from stages.pretrain.model.counts import parameters
from stages.pretrain.model.initialise import initialise
from stages.pretrain.model.loss import Scoring
from stages.pretrain.parallel.layout import layout_of
from tests.held import Held
from tests.stages.plan.test_arithmetic import SHAPES, VOCABULARY

CPU = torch.device("cpu")
GROUPED = SHAPES["grouped queries, tied"]
FAMILIES = {
    family: GROUPED.model_copy(update={"family": family, "intermediate_size": 256})
    for family in ("qwen2", "qwen3", "granite")
}
ROWS, TOKENS = 4, 128
ATTENTION = [("sdpa", False), ("sdpa", True), ("eager", False), ("eager", True), ("flex", False), ("flex", True)]


def pretrain_of(**settings: Any) -> PretrainConfig:
    return PretrainConfig.model_validate({"sequence_tokens": TOKENS, **settings})


@pytest.fixture
def flex_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """flex_attention refuses gradients on a CPU, where it has no backward pass; what its forward pass keeps for one is
    what it keeps on a GPU."""
    from torch.nn.attention import flex_attention

    assert hasattr(flex_attention, "_validate_device")
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *tensors: None)
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of one process."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def built(shape: ModelConfig, pretrain: PretrainConfig) -> torch.nn.Module:
    config = huggingface_config(shape, vocabulary_size=VOCABULARY, eos_id=2)
    model = build(config, implementation(pretrain.attention), trains=True)
    initialise(model, shape, seed=1)
    model.scoring = Scoring(vocabulary_size=VOCABULARY, chunk_tokens=pretrain.loss_chunk_tokens)
    recompute.apply(pretrain, model)
    return model.train()


def inputs(pretrain: PretrainConfig, dtype: torch.dtype) -> dict[str, Any]:
    ids = torch.randint(3, VOCABULARY, (ROWS, TOKENS))
    positions = torch.arange(TOKENS, dtype=torch.int32).repeat(ROWS, 1)
    if pretrain.needs_mask:
        positions[:, 50:] -= 50
    attention = Attention(pretrain.attention, pretrain.needs_mask, dtype)
    return {"input_ids": ids, "targets": ids, **attention.arguments(positions)}


def kept_bytes(model: torch.nn.Module, pretrain: PretrainConfig, *, fully_sharded: bool = False) -> int:
    """Bytes of all tensors that autograd keeps of one forward pass, parameters aside."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()} if not fully_sharded else set()
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = tensor
        return tensor

    precision = precision_of(pretrain, CPU, fully_sharded=fully_sharded)
    given = inputs(pretrain, precision.dtype)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), precision.autocast():
        model(**given)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def planned_bytes(shape: ModelConfig, pretrain: PretrainConfig) -> int:
    """The same as planned, with what the loss keeps: gradients of the hidden states and of the output matrix."""
    layout = layout_of(pretrain)
    hidden = residual_bytes(pretrain, layout) * shape.hidden_size
    kept = ROWS * TOKENS * (activation_bytes_per_token(shape, pretrain, layout) + hidden)
    return kept + 4 * VOCABULARY * shape.hidden_size


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize(("attention", "across"), ATTENTION)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_activations_are_what_autograd_keeps(
    shape: ModelConfig, precision: str, attention: str, across: bool, flex_on_a_cpu: None
) -> None:
    device = "auto" if attention == "flex" else "cpu"
    pretrain = pretrain_of(precision=precision, attention=attention, cross_document_attention=across, device=device)
    copies = weight_copies(shape, pretrain, layout_of(pretrain), VOCABULARY, accumulates=False)
    found = kept_bytes(built(shape, pretrain), pretrain)
    assert found == pytest.approx(planned_bytes(shape, pretrain) + copies, rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", FAMILIES.values(), ids=FAMILIES)
def test_and_of_other_families(shape: ModelConfig, precision: str) -> None:
    pretrain = pretrain_of(precision=precision, cross_document_attention=True)
    copies = weight_copies(shape, pretrain, layout_of(pretrain), VOCABULARY, accumulates=False)
    found = kept_bytes(built(shape, pretrain), pretrain)
    assert found == pytest.approx(planned_bytes(shape, pretrain) + copies, rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_and_of_sharded_models(alone: None, precision: str) -> None:
    """What FSDP has gathered is kept by reference and given up: it is not counted."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    pretrain = pretrain_of(precision=precision, cross_document_attention=True, num_processes=2)
    model = built(GROUPED, pretrain)
    mesh = init_device_mesh("cpu", (1,))
    for module in (*decoder_layers(model), model):
        fully_shard(module, mesh=mesh, mp_policy=mixed_precision(pretrain))
    planned = planned_bytes(GROUPED, pretrain)
    gathered = compute_bytes(pretrain) * (parameters(GROUPED, VOCABULARY).total - VOCABULARY * GROUPED.hidden_size)
    found = kept_bytes(model, pretrain, fully_sharded=True)
    assert planned <= found <= planned + gathered * 1.02


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "settings",
    [
        {"recompute": "full"},
        {"recompute": "operators"},
        {"recompute": "operators", "recompute_keep": ("attention",)},
        {"recompute": "operators", "recompute_keep": ("matmul",)},
        {"recompute": "budget"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_recomputation_holds_what_is_planned(settings: dict[str, Any], precision: str) -> None:
    """Between the passes, and then the layer that is computed again, which the plan counts as one of them."""
    shape = GROUPED.model_copy(update={"num_layers": 6})
    pretrain = pretrain_of(precision=precision, attention="eager", device="cpu", **settings)
    held, plain = {}, pretrain.model_copy(update={"recompute": "none"})
    for name, config in (("recomputed", pretrain), ("plain", plain)):
        model = built(shape, config)
        precise = precision_of(config, CPU, fully_sharded=False)
        given = inputs(config, precise.dtype)
        with Held() as count:
            with precise.autocast():
                objective, _ = model(**given)
            held[name] = count.num_bytes
            del objective
    copies = weight_copies(shape, pretrain, layout_of(pretrain), VOCABULARY, accumulates=False)
    saved = held["plain"] - held["recomputed"]
    planned = (
        ROWS
        * TOKENS
        * (
            activation_bytes_per_token(shape, plain, layout_of(plain))
            - activation_bytes_per_token(shape, pretrain, layout_of(pretrain))
        )
    )
    # The layer that is whole for a while, and the copies of weights that recomputing layers do not keep.
    one = ROWS * TOKENS * layer_bytes_per_token(shape, plain, layout_of(plain))
    assert planned <= saved * 1.02 and saved <= planned + one + copies


@pytest.mark.parametrize("tokens", [1000, 2048, 6000])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("attention", ["eager", "flex"])
def test_a_mask_takes_what_is_planned_for_it(attention: str, precision: str, tokens: int) -> None:
    settings = {"sequence_tokens": tokens, "attention": attention, "precision": precision}
    pretrain = PretrainConfig.model_validate({**settings, "model": {"context_tokens": tokens}})
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    positions = torch.arange(tokens, dtype=torch.int32)[None].clone()
    positions[:, 600:] -= 600
    with Held() as held:
        Attention(attention, True, dtype).arguments(positions)
    planned = mask_bytes_per_token(pretrain)
    assert held.peak_bytes / tokens == pytest.approx(planned, rel=0.1 if attention == "flex" else 0.01)


def test_only_eager_attention_and_gpus_have_a_mask_of_tokens_by_tokens() -> None:
    def mask(**settings: Any) -> int:
        return mask_bytes_per_token(PretrainConfig(sequence_tokens=256, **settings))

    assert mask() == mask(device="cuda") == 256 and mask(attention="flex", device="cuda") == 10
    assert mask(device="cpu") == mask(cross_document_attention=True) == mask(packing="length-buckets") == 0
    assert mask(attention="eager", precision="fp32", packing="length-buckets") == 5 * 256
    kept = [
        activation_bytes_per_token(ModelConfig(), pretrain, layout_of(pretrain))
        for pretrain in (PretrainConfig(sequence_tokens=256, device=device) for device in ("cuda", "cpu"))
    ]
    assert kept[0] - kept[1] == 2 * 256, "in bf16, once for all layers"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_loss_holds_a_chunk_of_scores(precision: str) -> None:
    from stages.pretrain.model.fused_loss import summed_losses

    pretrain = pretrain_of(precision=precision, loss_chunk_tokens=64)
    hidden = torch.randn(ROWS * TOKENS, GROUPED.hidden_size, requires_grad=True)
    matrix = torch.randn(VOCABULARY, GROUPED.hidden_size, requires_grad=True)
    scoring = Scoring(vocabulary_size=VOCABULARY, chunk_tokens=64)
    with Held() as held, precision_of(pretrain, CPU, fully_sharded=False).autocast():
        summed_losses(hidden, matrix, torch.randint(0, VOCABULARY, (ROWS * TOKENS,)), scoring=scoring)
    planned = loss_bytes(GROUPED, pretrain, layout_of(pretrain), VOCABULARY, tokens=ROWS * TOKENS, accumulates=True)
    assert held.peak_bytes == pytest.approx(planned - hidden.nbytes, rel=0.15), "the states were there before"
    assert held.peak_bytes < 4 * ROWS * TOKENS * VOCABULARY, "less than all scores by themselves"


def test_states_are_those_of_the_optimizer() -> None:
    from stages.pretrain.optimise.optimizer import build_optimizer

    shape = FAMILIES["qwen3"]
    for settings in (
        {},
        {"ema_decay": 0.99},
        {"optimizer": "muon"},
        {"optimizer_states": "8bit"},
        {"optimizer": "muon", "optimizer_states": "8bit", "ema_decay": 0.9},
    ):
        pretrain = pretrain_of(**settings)
        optimizer = build_optimizer(pretrain, shape, built(shape, pretrain), layout_of(pretrain))
        optimizer.create_state()
        tensors = {name: tensor for name, tensor in optimizer.tensors().items() if name != "optimizer.step"}
        found = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        assert found == all_state_bytes(shape, pretrain, VOCABULARY), settings


def test_each_layout_shares_what_it_says() -> None:
    total = parameters(GROUPED, VOCABULARY).total

    def planned(**settings: Any) -> Any:
        return memory(GROUPED, PretrainConfig(batch_sequences=8, precision="fp32", **settings), VOCABULARY)

    one = planned()
    assert (one.weights, one.gradients, one.optimizer, one.copies) == (4 * total, 4 * total, 8 * total, 0)
    full, hybrid = planned(num_processes=4), planned(num_processes=4, sharding="hybrid", shard_processes=2)
    assert full.weights == full.gradients == 4 * -(-total // 4) and full.optimizer == 8 * total // 4
    assert hybrid.weights == 2 * full.weights and full.copies == hybrid.copies > 0
    assert planned(num_processes=4, sharding="gradients").copies > full.copies
    assert planned(num_processes=4, layers_per_unit=3).copies > full.copies
    replicated = planned(num_processes=4, sharding="none")
    assert (replicated.weights, replicated.optimizer, replicated.copies) == (one.weights, one.optimizer, 0)
    owned = planned(num_processes=2, sharding="optimizer")
    assert owned.weights == one.weights and 0.5 * one.optimizer <= owned.optimizer < 0.75 * one.optimizer
    offloaded = planned(offload_optimizer=True, device="cuda")
    assert (offloaded.weights, offloaded.optimizer, offloaded.host) == (0, 0, 28 * total)
    assert offloaded.total < one.total


def test_a_checkpoint_is_written_from_a_copy_that_the_processes_share() -> None:
    """On the host, whatever the training is on; none if the training waits."""
    total = parameters(GROUPED, VOCABULARY).total

    def planned(**settings: Any) -> Any:
        return memory(GROUPED, PretrainConfig(batch_sequences=8, precision="fp32", **settings), VOCABULARY)

    one, waiting = planned(), planned(asynchronous_checkpoints=False)
    assert (one.staging, waiting.staging, one.total - waiting.total) == (12 * total, 0, 12 * total)
    for sharding in ("full", "none", "optimizer"):
        assert planned(num_processes=4, sharding=sharding).staging == 3 * total
    assert planned(num_processes=4, sharding="none", redundant=True).staging == 12 * total
    assert planned(num_processes=4, sharding="hybrid", shard_processes=2, redundant=True).staging == 6 * total
    on_gpu = planned(device="cuda")
    assert (on_gpu.staging, on_gpu.host, on_gpu.total) == (0, 12 * total, waiting.total)


def test_whole_states_go_to_the_owners_that_torch_gives_them() -> None:
    """Three processes, whose shares differ: as ZeroRedundancyOptimizer partitions these very tensors."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    pretrain = PretrainConfig(num_processes=3, sharding="optimizer", batch_sequences=9)
    model = built(GROUPED, pretrain)
    zero = object.__new__(ZeroRedundancyOptimizer)
    zero.world_size = 3
    zero._partition_parameters_cache = []
    zero.param_groups = [{"params": list(model.parameters())}]
    shares = [
        sum(parameter.numel() for group in groups for parameter in group["params"])
        for groups in zero._partition_parameters()
    ]
    assert held_state_bytes(GROUPED, pretrain, layout_of(pretrain), VOCABULARY) == 8 * max(shares)


def test_memory_is_bounded_by_the_micro_batch() -> None:
    def planned(**settings: Any) -> Any:
        return memory(GROUPED, PretrainConfig(batch_sequences=8, precision="fp32", **settings), VOCABULARY)

    one = planned(micro_batch_sequences=4)
    three = planned(micro_batch_sequences=4, num_processes=3)
    assert three.activations * 4 == one.activations * 3, "a third of 8 sequences is at most 3"
    whole = planned(micro_batch_sequences=100)
    assert whole.activations == 2 * one.activations and whole.total > one.total
    assert one.loss > whole.loss - 4 * 256 * 4 * 96 * 2, (
        "gradients of earlier micro-batches are there beside the loss's"
    )
