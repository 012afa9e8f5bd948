from typing import Any

import pytest
import torch

from stages.pretrain.optimise.adamw import AdamW
from stages.pretrain.optimise.guarded import Update
from stages.pretrain.optimise.optimizer import Optimizer
from tests.stages.pretrain.optimise import made

KINDS: dict[str, dict[str, Any]] = {
    "adamw": {"ema_decay": 0.9},
    "8bit": {"optimizer_states": "8bit", "ema_decay": 0.9},
    "muon": {"optimizer": "muon", "ema_decay": 0.9},
}


def state(optimizer: Optimizer, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    found = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    for name, tensor in optimizer.tensors().items():
        assert isinstance(tensor, torch.Tensor)
        found[name] = tensor.clone()
    return found


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def test_adamw_makes_the_steps_of_torch() -> None:
    """On gradients that were multiplied by the factor before."""
    config = made.config(beta1=0.8, beta2=0.9, epsilon=1e-6)
    module, other = made.model(), made.model()
    optimizer = made.optimizer(config, module)
    reference = torch.optim.AdamW(
        [
            {"params": [parameter], "weight_decay": 0.1 if parameter.ndim > 1 and "embed" not in name else 0.0}
            for name, parameter in other.named_parameters()
        ],
        betas=(0.8, 0.9),
        eps=1e-6,
    )
    for step in range(1, 5):
        made.one_step(optimizer, module, step)
        for group in reference.param_groups:
            group["lr"] = 0.01 * step
        for name, parameter in other.named_parameters():
            parameter.grad = 0.5 * made.drawn(name, step)
        reference.step()
        for (name, mine), (_, expected) in zip(module.named_parameters(), other.named_parameters(), strict=True):
            assert torch.allclose(mine, expected, rtol=1e-6, atol=1e-7), name
    assert state(optimizer, module)["optimizer.step"] == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_is_skipped_leaves_every_bit_and_the_next_one_does_not_know_of_it(kind: str) -> None:
    config = made.config(**KINDS[kind])
    module, undisturbed = made.model(), made.model()
    optimizer, other = made.optimizer(config, module), made.optimizer(config, undisturbed)
    for step in (1, 2):
        made.one_step(optimizer, module, step)
        made.one_step(other, undisturbed, step)
    before = state(optimizer, module)
    updates = made.one_step(optimizer, module, 3, skip=True, measure=True)
    assert all(same_bits(tensor, before[name]) for name, tensor in state(optimizer, module).items())
    assert all(square == 0 for square in updates.values())
    for one, its in ((optimizer, module), (other, undisturbed)):
        made.one_step(one, its, 4)
    expected = state(other, undisturbed)
    assert all(same_bits(tensor, expected[name]) for name, tensor in state(optimizer, module).items())
    assert not all(same_bits(tensor, before[name]) for name, tensor in expected.items())


@pytest.mark.parametrize("kind", KINDS)
def test_updates_are_measured_by_group(kind: str) -> None:
    module = made.model()
    optimizer = made.optimizer(made.config(**KINDS[kind]), module)
    before = {name: parameter.detach().double() for name, parameter in module.named_parameters()}
    assert made.one_step(optimizer, module, 1) == {}
    for name, parameter in module.named_parameters():
        before[name] = parameter.detach().double()
    updates = made.one_step(optimizer, module, 2, measure=True)
    moved = {name: parameter.detach().double() - before[name] for name, parameter in module.named_parameters()}
    expected = sum(change.square().sum() for name, change in moved.items() if ".mlp." in name)
    assert list(updates) == ["embedding", "attention", "feed_forward", "norm", "head"]
    assert updates["feed_forward"].item() == pytest.approx(float(expected), rel=1e-5)


def test_every_parameter_has_state_from_the_start() -> None:
    """So a checkpoint always holds, and a load always fills, all of it."""
    module = made.model()
    optimizer = made.optimizer(made.config(ema_decay=0.9), module)
    tensors = optimizer.tensors()
    slots = {f"optimizer.{name}.{slot}" for name in made.SHAPES for slot in ("exp_avg", "exp_avg_sq")}
    assert set(tensors) == {"optimizer.step"} | slots | {f"ema.{name}" for name in made.SHAPES}
    for name, parameter in module.named_parameters():
        assert torch.equal(state(optimizer, module)[f"ema.{name}"], parameter)


def test_states_in_eight_bits_are_those_of_matrices() -> None:
    tensors = state(made.optimizer(made.config(optimizer_states="8bit"), module := made.model()), module)
    for name, shape in made.SHAPES.items():
        if len(shape) == 1:
            assert tensors[f"optimizer.{name}.exp_avg"].dtype == torch.float32
        else:
            codes, scales = (tensors[f"optimizer.{name}.exp_avg.{part}"] for part in ("codes", "scales"))
            assert (codes.dtype, tuple(codes.shape)) == (torch.uint8, shape)
            assert (scales.dtype, tuple(scales.shape)) == (torch.float32, (shape[0], -(-shape[1] // 256)))


def test_steps_with_states_in_eight_bits_stay_near_those_without() -> None:
    modules = made.model(), made.model(), made.model()
    for module, kind in zip(modules[:2], ("fp32", "8bit"), strict=True):
        optimizer = made.optimizer(made.config(optimizer_states=kind), module)
        for step in range(1, 9):
            made.one_step(optimizer, module, step)
    name = "model.layers.0.mlp.up_proj.weight"
    plain, packed, start = (module.get_parameter(name).detach() for module in modules)
    assert 0 < (packed - plain).norm() < 0.05 * (plain - start).norm()


def one_weight(learning_rate: float, decay: float, gradient: float) -> torch.Tensor:
    """After 1000 steps from 1.0 on, with the same gradient in each."""
    weight = made.weight(torch.ones(1, 1), decay=decay)
    adamw = AdamW(made.config(precision="bf16", beta1=0.0, beta2=0.0), [weight])
    for step in range(1, 1001):
        weight.parameter.grad = torch.full((1, 1), gradient)
        adamw.step(Update(learning_rate, torch.tensor(1.0), torch.tensor(0.0), torch.tensor(float(step))))
    return weight.values


def test_updates_below_a_bf16_step_add_up_in_the_master_weights() -> None:
    assert one_weight(1e-3, 0.0, -1.0).item() == pytest.approx(2.0, rel=1e-3)
    assert one_weight(1e-4, 0.1, 0.0).item() == pytest.approx(0.990, abs=1e-4)
    bf16 = torch.tensor(1.0, dtype=torch.bfloat16)
    assert bf16 + 1e-3 == bf16, "in bf16 itself neither update would move the weight"
