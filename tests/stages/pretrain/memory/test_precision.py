"""A user relies on: whatever the matrix products are computed in, weights, moments, reductions and loss are float32."""

from typing import Any

import pytest
import torch

from data.errors import InputError
from stages.pretrain.memory.precision import Precision, mixed_precision, offloading, precision_of
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build
from tests.stages.pretrain.one_step import one_step

CPU = torch.device("cpu")
NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_products_are_narrow_and_everything_else_is_not(build: Build, name: str) -> None:
    training, _ = build(micro.config(precision=name))
    assert training.precision.dtype == training.attention.dtype == NARROW.get(name, torch.float32)
    assert training.precision.needs_scale == (name == "fp16")
    products: list[torch.dtype] = []
    projection = training.model.get_submodule("model.layers.0.mlp.gate_proj")
    projection.register_forward_hook(lambda module, given, made: products.append(made.dtype))
    rows = training.train_feed.place(training.train.batch(0)).micro_batches[0]
    with training.precision.autocast():
        objective, loss = training.model(
            input_ids=rows.inputs, targets=rows.targets, **training.attention.arguments(rows.positions)
        )
    objective.backward()
    assert products == [training.precision.dtype]
    assert objective.dtype == loss.dtype == torch.float32
    for parameter_name, parameter in training.model.named_parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.float32, parameter_name
    one_step(training)
    assert {tensor.dtype for tensor in training.tensors().values()} == {torch.float32}


def constant_updates(**settings: Any) -> torch.Tensor:
    """A weight of 1.0 after 1,000 steps of our optimizer."""
    from stages.pretrain.optimise.optimizer import build_optimizer
    from stages.pretrain.parallel.layout import layout_of

    config = micro.config(precision="bf16", **settings)
    model = torch.nn.Linear(4, 4, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = build_optimizer(config, config.model.resolved(), model, layout_of(config))
    optimizer.create_state()
    for _ in range(1000):
        model.weight.grad = torch.full_like(model.weight, -1.0 if settings["weight_decay"] == 0 else 0.0)
        optimizer.step(learning_rate=1e-3, factor=torch.tensor(1.0), skip=torch.tensor(False))
    assert {tensor.dtype for tensor in optimizer.tensors().values()} == {torch.float32}
    return model.weight.detach()


@pytest.mark.parametrize(("decay", "expected"), [(0.0, 2.0), (0.01, 0.99)])
def test_small_updates_move_weights_that_would_stay_in_bf16(decay: float, expected: float) -> None:
    weight = constant_updates(weight_decay=decay)
    torch.testing.assert_close(weight, torch.full_like(weight, expected), rtol=1e-4, atol=0.0)
    pure = torch.ones(4, 4, dtype=torch.bfloat16)
    for _ in range(1000):
        pure += 1e-3 if decay == 0 else -1e-5 * pure
    assert torch.equal(pure, torch.ones_like(pure)), "the fault that float32 weights are there against"


def test_sharded_weights_are_gathered_narrow_and_reduced_in_float32() -> None:
    for name, dtype in NARROW.items():
        policy = mixed_precision(micro.config(precision=name))
        assert (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) == (dtype, torch.float32, None)
    assert mixed_precision(micro.config(precision="fp32")).param_dtype is None
    sharded = precision_of(micro.config(precision="bf16"), CPU, fully_sharded=True)
    with sharded.autocast():
        assert not torch.is_autocast_enabled("cpu"), "a second cast beside that of the policy"
    assert Precision("fp8", "cuda", casts=True).dtype == torch.bfloat16


def test_offloading_is_fsdps_policy() -> None:
    from torch.distributed.fsdp import CPUOffloadPolicy

    assert not isinstance(offloading(micro.config()), CPUOffloadPolicy)
    # As a recipe for GPUs has it.
    assert isinstance(offloading(micro.config().model_copy(update={"offload_optimizer": True})), CPUOffloadPolicy)


def test_what_a_device_cannot_do_is_refused_by_name() -> None:
    for settings, said in (
        ({"precision": "fp8"}, 'precision = "fp8" needs a Hopper GPU'),
        ({"offload_optimizer": True}, "offload_optimizer has no effect on a CPU"),
    ):
        with pytest.raises(InputError, match=said):
            precision_of(micro.config().model_copy(update=settings), CPU, fully_sharded=True)


def test_fp8_names_the_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install torchao"):
        precision_of(
            micro.config().model_copy(update={"precision": "fp8"}), torch.device("cuda", 0), fully_sharded=True
        )
