"""A module with a decoder's names and shapes that nothing divides, and gradients that are a function of the step."""

from typing import Any

import torch

from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.optimise.groups import Weight, weights
from stages.pretrain.optimise.optimizer import Optimizer
from tests.stages.pretrain import micro

SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (11, 10),
    "model.layers.0.input_layernorm.weight": (10,),
    "model.layers.0.self_attn.q_proj.weight": (7, 10),
    "model.layers.0.self_attn.q_proj.bias": (7,),
    "model.layers.0.self_attn.k_proj.weight": (3, 10),
    "model.layers.0.self_attn.o_proj.weight": (10, 7),
    "model.layers.0.mlp.up_proj.weight": (300, 10),
    "model.layers.0.mlp.down_proj.weight": (10, 300),
    "model.norm.weight": (10,),
    "lm_head.weight": (11, 10),
}
SHAPE = ModelConfig(hidden_size=24, num_heads=2, num_kv_heads=2)


def model(*, device: str = "cpu") -> torch.nn.Module:
    """With normal weights that follow from their names."""
    root = torch.nn.Module()
    for name in SHAPES:
        *path, leaf = name.split(".")
        module = root
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
            module = getattr(module, part)
        module.register_parameter(leaf, torch.nn.Parameter(drawn(name, 0).to(device)))
    return root


def drawn(name: str, step: int) -> torch.Tensor:
    """The gradient of a parameter in a step; in step 0 its first value."""
    generator = torch.Generator().manual_seed(1000 * step + list(SHAPES).index(name))
    return torch.randn(SHAPES[name], generator=generator)


def config(**changes: Any) -> PretrainConfig:
    """A training with everything that makes updates differ between parameters."""
    return micro.config(**{"weight_decay": 0.1, "decay_embeddings": False, **changes})


def optimizer(config: PretrainConfig, module: torch.nn.Module) -> Optimizer:
    """That of one process, with its state."""
    made = Optimizer(config, weights(config, SHAPE, module), is_replicated=False, owners=None)
    made.create_state()
    return made


def weight(tensor: torch.Tensor, **changes: Any) -> Weight:
    """A matrix of a layer by itself."""
    name = "model.layers.0.mlp.up_proj.weight"
    settings = {"name": name, "decay": 0.0, "learning_rate_ratio": 1.0, **changes}
    return Weight(parameter=torch.nn.Parameter(tensor), **settings)


def one_step(
    made: Optimizer, module: torch.nn.Module, step: int, *, skip: bool = False, **settings: Any
) -> dict[Any, torch.Tensor]:
    """A step of one process."""
    for name, parameter in module.named_parameters():
        parameter.grad = drawn(name, step) * (float("nan") if skip else 1.0)
    factor = torch.tensor(float("nan") if skip else 0.5, dtype=torch.float64)
    found = made.step(learning_rate=0.01 * step, factor=factor, skip=torch.tensor(skip), **settings)
    made.zero_grad()
    return found
