"""A user relies on: recomputation needs less memory and changes no bit of a gradient, in every layout and precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.memory import recompute
from stages.pretrain.memory.precision import mixed_precision, precision_of
from stages.pretrain.model.attention import Attention, implementation
from stages.pretrain.model.build import build, decoder_layers, huggingface_config
from stages.pretrain.model.compiled import compile_layers
from stages.pretrain.model.initialise import initialise
from stages.pretrain.parallel.spread import unwrapped
from tests.held import Held

SHAPE = ModelConfig(
    hidden_size=96, num_layers=5, num_heads=6, num_kv_heads=2, intermediate_size=200, initializer_std=0.1
)
VOCABULARY = 1003
CPU = torch.device("cpu")
MODES: dict[str, dict[str, Any]] = {
    "full": {"recompute": "full"},
    "operators": {"recompute": "operators"},
    "attention": {"recompute": "operators", "recompute_keep": ("attention",)},
    "matmul": {"recompute": "operators", "recompute_keep": ("matmul",)},
    "budget": {"recompute": "budget", "recompute_kept_share": 0.5},
}


def config_of(**settings: Any) -> PretrainConfig:
    return PretrainConfig.model_validate({"model": SHAPE.model_dump(), "sequence_tokens": 64, **settings})


def built(config: PretrainConfig) -> torch.nn.Module:
    shape = huggingface_config(SHAPE, vocabulary_size=VOCABULARY, eos_id=2)
    model = build(shape, implementation(config.attention), trains=True)
    initialise(model, SHAPE, seed=1)
    recompute.apply(config, model)
    return model.train()


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, VOCABULARY, (2, 64), generator=generator)
    positions = torch.arange(64, dtype=torch.int32).repeat(2, 1)
    positions[:, 23:] -= 23
    return ids, ids.roll(-1, 1), positions


def passes(
    config: PretrainConfig, model: torch.nn.Module, *, fully_sharded: bool = False
) -> tuple[dict[str, torch.Tensor], int]:
    """The gradients of one batch, and the bytes that are held between its two passes."""
    ids, targets, positions = batch()
    precision = precision_of(config, CPU, fully_sharded=fully_sharded)
    arguments = Attention(config.attention, True, precision.dtype).arguments(positions)
    with Held() as held:
        with precision.autocast():
            objective, _ = model(input_ids=ids, targets=targets, **arguments)
        num_bytes = held.num_bytes
        objective.backward()
    gradients = {}
    for name, parameter in unwrapped(model).named_parameters():
        assert parameter.grad is not None, name
        gradients[name] = parameter.grad
    return gradients, num_bytes


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_mode_gives_the_same_bits_for_less_memory(precision: str, attention: str) -> None:
    settings = {"precision": precision, "attention": attention}
    plain = config_of(**settings)
    expected, most = passes(plain, built(plain))
    taken = {}
    for name, mode in MODES.items():
        config = config_of(**settings, **mode)
        found, taken[name] = passes(config, built(config))
        assert found.keys() == expected.keys()
        for parameter, gradient in expected.items():
            assert torch.equal(found[parameter], gradient), (name, parameter)
    assert taken["full"] < taken["attention"] < taken["operators"] < most
    assert taken["full"] < taken["matmul"] < taken["operators"]
    assert taken["full"] < taken["budget"] < most


def test_a_budget_keeps_the_last_layers() -> None:
    for share, kept in ((0.19, 0), (0.5, 2), (0.6, 3), (0.99, 4)):
        config = config_of(recompute="budget", recompute_kept_share=share)
        layers = decoder_layers(built(config))
        replaced = ["forward" in vars(layer) for layer in layers]
        assert replaced == [True] * (5 - kept) + [False] * kept
        assert recompute.num_recomputed(config, 5) == 5 - kept


def test_names_types_and_hooks_stay_and_hooks_run_once() -> None:
    config = config_of(recompute="full")
    plain, model = built(config_of()), built(config)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
    assert {type(module) for module in model.modules()} == {type(module) for module in plain.modules()}
    calls: list[int] = []
    for number, layer in enumerate(decoder_layers(model)):
        layer.register_forward_hook(lambda module, given, made, number=number: calls.append(number))
    passes(config, model)
    assert calls == [0, 1, 2, 3, 4]


def test_without_gradients_nothing_is_prepared_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any, **named: Any) -> None:
        raise AssertionError("a pass without gradients has nothing to recompute")

    monkeypatch.setattr("torch.utils.checkpoint.checkpoint", refused)
    config = config_of(recompute="full", precision="fp32")
    ids, targets, positions = batch()
    model = built(config)
    with torch.no_grad():
        model(input_ids=ids, targets=targets, **Attention("sdpa", True, torch.float32).arguments(positions))
    with pytest.raises(AssertionError):
        passes(config, model)


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of one process."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", ["full", "operators", "budget"])
def test_under_fsdp_and_ddp_too(alone: None, mode: str, precision: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1,))

    def sharded(config: PretrainConfig) -> torch.nn.Module:
        model = built(config)
        for module in (*decoder_layers(model), model):
            fully_shard(module, mesh=mesh, mp_policy=mixed_precision(config))
        return model

    plain = config_of(precision=precision)
    config = config_of(precision=precision, **MODES[mode])
    for spread, fully_sharded in (
        (sharded, True),
        (lambda of: torch.nn.parallel.DistributedDataParallel(built(of)), False),
    ):
        expected, most = passes(plain, spread(plain), fully_sharded=fully_sharded)
        found, taken = passes(config, spread(config), fully_sharded=fully_sharded)
        assert taken < most
        for name, gradient in expected.items():
            assert torch.equal(_local(found[name]), _local(gradient)), name


def _local(gradient: Any) -> torch.Tensor:
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient


@contextmanager
def fresh_compiler() -> Iterator[None]:
    import torch._functorch.config

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    before = torch._functorch.config.activation_memory_budget
    try:
        yield
    finally:
        torch._functorch.config.activation_memory_budget = before
        torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_layers_recompute_what_they_are_told() -> None:
    """With torch's partitioner, which decides what is kept, and without a compiler of C++ behind it."""
    taken = {}
    gradients = {}
    for name in ("none", "full", "operators", "budget"):
        config = config_of(compile=True, precision="fp32", **MODES.get(name, {}))
        with fresh_compiler():
            model = built(config)
            compile_layers(model, backend="aot_eager")
            ids, targets, positions = batch()
            kept: dict[int, torch.Tensor] = {}

            def keep(tensor: torch.Tensor, kept: dict[int, torch.Tensor] = kept) -> torch.Tensor:
                kept[tensor.untyped_storage().data_ptr()] = tensor
                return tensor

            hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
            with hooks:
                objective, _ = model(
                    input_ids=ids, targets=targets, **Attention("sdpa", True, torch.float32).arguments(positions)
                )
            taken[name] = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
            objective.backward()
            gradients[name] = {parameter: of.grad for parameter, of in model.named_parameters()}
            assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, "layers share a compilation"
    for name, found in gradients.items():
        for parameter, gradient in gradients["none"].items():
            torch.testing.assert_close(found[parameter], gradient, rtol=1e-5, atol=1e-5, msg=f"{name} {parameter}")
    assert taken["full"] < taken["operators"] < taken["none"]
    assert taken["full"] < taken["budget"] < taken["none"]
