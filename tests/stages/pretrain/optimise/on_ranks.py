"""Optimizers under every layout, held to that of one process: run on four ranks by `test_layouts`.

Prints a line for each comparison that fails, on the rank that finds it. Where parameters are whole, all bits are those
of one process. Where they are cut, other elements come last, and the kernel computes the last ones of a tensor without
vector instructions, which round elsewhere.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from stages.pretrain.checkpoints.tensors import Held
from stages.pretrain.config import PretrainConfig
from stages.pretrain.optimise.groups import weights
from stages.pretrain.optimise.norms import squared_norms
from stages.pretrain.optimise.optimizer import Optimizer
from stages.pretrain.optimise.owners import Owners
from tests.stages.pretrain.optimise import made

SETTINGS = {
    "adamw": {"ema_decay": 0.5},
    "8bit": {"optimizer_states": "8bit"},
    "muon": {"optimizer": "muon", "ema_decay": 0.5},
    "muon 8bit": {"optimizer": "muon", "optimizer_states": "8bit"},
}
LAYOUTS = ("full", "hybrid", "none", "optimizer")
SKIPPED = 3
STEPS = (1, 2, SKIPPED, 4)


def spread(layout: str, config: PretrainConfig) -> tuple[torch.nn.Module, Optimizer]:
    module, size = made.model(), dist.get_world_size()
    if layout == "full":
        fully_shard(module, mesh=init_device_mesh("cpu", (size,)))
    elif layout == "hybrid":
        fully_shard(module, mesh=init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicas", "shards")))
    found = weights(config, made.SHAPE, module)
    owners = Owners(found, torch.device("cpu")) if layout == "optimizer" else None
    optimizer = Optimizer(config, found, is_replicated=layout in ("none", "optimizer"), owners=owners)
    optimizer.create_state()
    return module, optimizer


def set_gradients(module: torch.nn.Module, step: int) -> None:
    """Those of a step, as a backward pass leaves them: not finite on one rank's rows in the step that is skipped."""
    for name, parameter in module.named_parameters():
        gradient = made.drawn(name, step)
        if step == SKIPPED:
            gradient[0] = float("nan")
        if isinstance(parameter, DTensor):
            parameter.grad = distribute_tensor(
                gradient, parameter.device_mesh, parameter.placements, src_data_rank=None
            )
        else:
            parameter.grad = gradient


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def same(layout: str, found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Also of codes in eight bits: those that are on the edge between two values may be one apart."""
    if layout in ("none", "optimizer"):
        return torch.equal(found, expected)
    if found.dtype == torch.uint8:
        apart = (found.int() - expected.int()).abs()
        return bool(apart.max() <= 1 and apart.float().mean() < 0.01)
    return torch.allclose(found, expected, rtol=1e-6, atol=2e-7)


def differences(layout: str, settings: dict[str, object]) -> Iterator[str]:
    config = made.config(**settings)
    module, optimizer = spread(layout, config)
    alone = made.model()
    reference = made.optimizer(config, alone)
    for step in STEPS:
        for optimised in (module, alone):
            set_gradients(optimised, step)
        for group, square in squared_norms(alone).items():
            found = squared_norms(module)[group]
            if step != SKIPPED and not torch.isclose(found, square, rtol=1e-13, atol=0):
                yield f"step {step}: the gradient of {group} has the norm {found}, not {square}"
        arguments = {
            "learning_rate": 0.01 * step,
            "factor": torch.tensor(0.5 if step != SKIPPED else float("nan"), dtype=torch.float64),
            "skip": torch.tensor(step == SKIPPED),
            "measure": step != 2,
        }
        updates, expected = optimizer.step(**arguments), reference.step(**arguments)  # type: ignore[arg-type]
        if list(updates) != list(expected) or bool(updates) != (step != 2):
            yield f"step {step}: updates are measured of {list(updates)}"
        for group, square in expected.items():
            if not torch.isclose(updates[group], square, rtol=1e-6, atol=0) or (square > 0) == (step == SKIPPED):
                yield f"step {step}: the update of {group} has the norm {updates[group]}, not {square}"
        for (name, mine), (_, other) in zip(module.named_parameters(), alone.named_parameters(), strict=True):
            if not same(layout, whole(mine.detach()), other.detach()):
                yield f"step {step}: {name} differs by {(whole(mine.detach()) - other).abs().max()}"
    state, expected_state = optimizer.tensors(), reference.tensors()
    if sorted(state) != sorted(expected_state):
        yield f"the state has {sorted(state)}"
    held = 0
    for name, other in expected_state.items():
        assert isinstance(other, torch.Tensor)
        mine = state[name]
        if isinstance(mine, Held):
            if (mine.shape, mine.dtype) != (tuple(other.shape), other.dtype):
                yield f"{name} is said to be {mine}"
            if (mine.tensor is None) == (mine.holder == dist.get_rank()):
                yield f"{name} is not where it is said to be: {mine}"
            if mine.tensor is None:
                continue
            held, mine = held + 1, mine.tensor
        if not same(layout, whole(mine), other):
            yield f"{name} differs by {(whole(mine).float() - other.float()).abs().max()}"
    if layout == "optimizer" and not 0 < held < len(expected_state) - 1:
        yield f"{held} of {len(expected_state)} states lie on this rank"


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    for layout in LAYOUTS:
        for name, settings in SETTINGS.items():
            for difference in differences(layout, settings):
                print(f"{layout}, {name}, rank {dist.get_rank()}: {difference}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
