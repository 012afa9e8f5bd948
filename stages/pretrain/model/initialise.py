"""From a model without memory to one whose weights follow from the seed alone, however they are sharded.

Each tensor is drawn as a whole, on the CPU, from a generator of its own that is seeded with (seed, name); a rank copies
its shard of it. So the values depend neither on the world size, nor on the layout, nor on the order in which tensors
are made, nor on what else has drawn random numbers; and no more than one whole tensor is held beside the model.

Output projections of the residual blocks are scaled by 1/sqrt(2 num_layers) (Radford et al., 2019, "Language Models are
Unsupervised Multitask Learners", section 2.3). With `mup_base_hidden_size`, matrices that map the width to itself or to
the feed-forward width follow maximal update parametrisation for Adam (Yang et al., 2022, "Tensor Programs V", table 8):
with r = hidden_size / base, variance 1/r and learning rate 1/r; attention and logits are scaled in the model's config.
"""

import hashlib
import math
from typing import TYPE_CHECKING

from stages.pretrain.model.shape import ModelConfig

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

RESIDUAL_OUTPUTS = ("o_proj.weight", "down_proj.weight")
HIDDEN_MATRICES = (
    *("q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight", "up_proj.weight"),
    *RESIDUAL_OUTPUTS,
)


def lr_multiplier(shape: ModelConfig, name: str) -> float:
    """By what the learning rate of the parameter `name` (as transformers names it) is multiplied. 1 everywhere without
    maximal update parametrisation. The shape must be resolved."""
    return 1.0 / shape.width_ratio if name.endswith(HIDDEN_MATRICES) else 1.0


def initial_std(shape: ModelConfig, name: str) -> float:
    """Standard deviation that the matrix `name` is drawn with."""
    std = shape.initializer_std
    if name.endswith(HIDDEN_MATRICES):
        std /= math.sqrt(shape.width_ratio)
    return std / math.sqrt(2 * shape.num_layers) if name.endswith(RESIDUAL_OUTPUTS) else std


def materialise(model: "PreTrainedModel", *, shape: ModelConfig, seed: int, device: "torch.device | str") -> None:
    """Give a model that was built on "meta", and is sharded or not, its memory on `device` and its first weights."""
    allocate(model, device)
    initialise(model, shape, seed=seed)


def allocate(model: "PreTrainedModel", device: "torch.device | str") -> None:
    """Give a model that was built on "meta" its memory on `device`: buffers as a directly built model has them, and NaN
    in every parameter, which must be set. Parameters that were one tensor are one again.

    Buffers that are in no checkpoint, such as the rotary frequencies, would otherwise hold whatever the memory held.
    """
    import torch

    owners: dict[int, list[tuple[torch.nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((module, name))
    shared = [places for places in owners.values() if len(places) > 1]
    model.to_empty(device=device)
    for (first, name), *others in shared:
        for module, other_name in others:
            setattr(module, other_name, getattr(first, name))
    if model.config.tie_word_embeddings:
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight, "the embeddings came apart"
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
        for module in model.modules():
            buffers = dict(module.named_buffers(recurse=False))
            if buffers:
                built = dict(type(module)(model.config).named_buffers(recurse=False))
                assert built.keys() == buffers.keys(), f"{type(module).__name__} makes other buffers: {built.keys()}"
                for name, buffer in buffers.items():
                    assert buffer.dtype == built[name].dtype == torch.float32, f"{name} is {buffer.dtype}"
                    buffer.copy_(built[name])


def initialise(model: "torch.nn.Module", shape: ModelConfig, *, seed: int) -> None:
    """Set every weight in place: norms to 1, biases to 0, matrices normal with mean 0. The shape must be resolved;
    `model`: float32, on any device and in any layout, under the names of transformers."""
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor

    generator = torch.Generator()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            assert parameter.dtype == torch.float32 and not parameter.is_meta, f"{name}: {parameter.dtype}"
            if parameter.ndim == 1:
                parameter.fill_(0.0 if name.endswith(".bias") else 1.0)
                continue
            generator.manual_seed(seed_of(seed, name))
            whole = torch.empty(parameter.shape).normal_(0.0, initial_std(shape, name), generator=generator)
            if isinstance(parameter, DTensor):
                # Without a source rank nothing is sent: each rank cuts its own shard.
                part = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
                parameter.to_local().copy_(part.to_local())
            else:
                parameter.copy_(whole)


def seed_of(seed: int, name: str) -> int:
    """A 63-bit seed that is a function of (seed, name)."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "little") >> 1
