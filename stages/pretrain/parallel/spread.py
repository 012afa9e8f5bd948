"""How a model comes to lie on several processes as the layout says, and what passes between them in a step.

Accelerate knows the device of each process and wraps what is replicated. Sharding is FSDP2's `fully_shard`
called by ourselves: Accelerate would drop it on a CPU without a word, and knows neither units of several layers nor how
far to gather ahead; it is handed the sharded model. Names of parameters are those of transformers in every layout.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from data.errors import InputError
from stages.pretrain.config import PretrainConfig
from stages.pretrain.memory.precision import mixed_precision, offloading
from stages.pretrain.model.build import decoder_layers
from stages.pretrain.parallel.layout import Layout
from stages.pretrain.parallel.ranks import Ranks, join, join_alone

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule

    from stages.pretrain.parallel.overlap import AsyncReduceScatter

# Sharded models: whether they keep parameters gathered between the micro-batches of a step, and what reduces their
# gradients while they compute.
_SHARDED: "WeakKeyDictionary[torch.nn.Module, tuple[bool, AsyncReduceScatter | None]]" = WeakKeyDictionary()


def start(config: PretrainConfig, layout: Layout) -> "tuple[Accelerator, Ranks]":
    """Join the other processes and set this one up for reproducible arithmetic."""
    import torch
    import torch.utils.deterministic
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs

    torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    on_cpu = config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available())
    if not on_cpu:
        _require_gpus(config)
    if config.num_processes > 1:
        join(config.num_processes, on_cpu=on_cpu, timeout_seconds=config.collective_timeout_seconds)
    elif layout.is_sharded and not on_cpu:
        join_alone()
    accelerator = Accelerator(
        cpu=on_cpu,
        mixed_precision="no",  # Accelerate's own would reduce gradients and return the loss in the narrow type
        kwargs_handlers=[
            DistributedDataParallelKwargs(
                broadcast_buffers=False,  # tables of the rotary embedding: the same everywhere
                bucket_cap_mb=cast(int, layout.bucket_bytes / (1 << 20)),
                gradient_as_bucket_view=True,
            ),
        ],
    )
    ranks = Ranks(accelerator.process_index, accelerator.num_processes, accelerator.device)
    # Accelerate falls back to single processes that know nothing of each other without a word.
    assert ranks.size == config.num_processes, f"{config.num_processes} processes were asked for, {ranks.size} found"
    return accelerator, ranks


def _require_gpus(config: PretrainConfig) -> None:
    """Raises InputError unless there is a GPU for each process: without any, Accelerate would take the CPU without a
    word."""
    import torch

    found = torch.cuda.device_count()
    if not found:
        raise InputError('pretrain.device = "cuda": torch finds no GPU here; use "auto" or "cpu"')
    if config.num_processes > found:
        raise InputError(
            f"pretrain.num_processes = {config.num_processes} is more than the {found} GPUs here: each process needs "
            "one of its own"
        )


def spread(
    accelerator: "Accelerator",
    model: "torch.nn.Module",
    config: PretrainConfig,
    layout: Layout,
    *,
    materialise: Callable[..., Any],
) -> "torch.nn.Module":
    """Place a model that lies on meta as `layout` says.

    materialise(model, device=) gives it memory on the device and fills every parameter and buffer, in the shards that
    it finds. Returns the module to call; `unwrapped` gives the one with transformers' names.
    """
    import torch

    if not layout.is_sharded:
        materialise(model, device=accelerator.device)
        with warnings.catch_warnings():
            # What torch would have in its place since 2.13, Accelerate does not pass on.
            warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")
            wrapped = cast(torch.nn.Module, accelerator.prepare(model))
        if layout.kind == "replicated" and not layout.overlap:
            from stages.pretrain.parallel.overlap import in_turn

            assert isinstance(wrapped, torch.nn.parallel.DistributedDataParallel)
            wrapped.register_comm_hook(torch.distributed.group.WORLD, in_turn)
        return wrapped
    shard(model, config, layout, accelerator.device)
    if config.offload_optimizer:
        materialise(model, device=torch.device("cpu"))
        for module in model.modules():  # shards stay on the host, tables go to where they are used
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = buffer.to(accelerator.device)
    else:
        materialise(model, device=accelerator.device)
    return accelerator.prepare_model(model, evaluation_mode=True)


def shard(model: "torch.nn.Module", config: PretrainConfig, layout: Layout, device: "torch.device") -> None:
    """Shard `model`, which lies on meta, in place: units of decoder layers, and one unit of all the rest.

    The rest is the root's: the model computes its loss from the output matrix itself, so that this has to be there
    while the root runs, as a tied embedding has to. An embedding of its own is a unit too, which the backward pass does
    not need.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torch.distributed.tensor import DTensor

    how: dict[str, Any] = {
        "mesh": device_mesh(layout, device),
        "mp_policy": mixed_precision(config),
        "offload_policy": offloading(config),
        "reshard_after_forward": layout.reshards_after_forward,
    }
    layers = list(decoder_layers(model))
    parts = [layers[first : first + layout.layers_per_unit] for first in range(0, len(layers), layout.layers_per_unit)]
    for part in parts:
        fully_shard(part, **how)
    embedding, output = model.get_input_embeddings(), model.get_output_embeddings()  # type: ignore[operator]
    has_own_embedding = embedding.weight is not output.weight
    if has_own_embedding:
        fully_shard(embedding, **how).set_unshard_in_backward(False)
    fully_shard(model, **{**how, "reshard_after_forward": False})
    plain = [name for name, parameter in model.named_parameters() if not isinstance(parameter, DTensor)]
    assert not plain, f"not sharded: {plain}"
    assert isinstance(model, FSDPModule)
    units = cast("list[FSDPModule]", [part[0] for part in parts])
    _gather_ahead(model, ([embedding] if has_own_embedding else []) + units, units, layout.prefetch_units)
    _share_time(model, layout, device)


def device_mesh(layout: Layout, device: "torch.device") -> "DeviceMesh":
    """The processes in one dimension, "shard", or with hybrid sharding in two, "replicate" and "shard"; neighbours
    shard with each other."""
    from torch.distributed.device_mesh import init_device_mesh

    if layout.sharding == "hybrid":
        return init_device_mesh(device.type, (layout.replicas, layout.shards), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(device.type, (layout.shards,), mesh_dim_names=("shard",))


def _gather_ahead(
    root: "FSDPModule", forward: "list[FSDPModule]", backward: "list[FSDPModule]", num_units: int
) -> None:
    """Let each unit, as it begins, have the next `num_units` gathered. forward: units that the forward pass runs
    through, after the root; backward: those that the backward pass needs, in the order of the forward pass."""
    for place, unit in enumerate([root, *forward]):
        unit.set_modules_to_forward_prefetch(forward[place : place + num_units])
    for place, unit in enumerate([*backward, root]):
        # Without a list FSDP2 gathers one unit ahead; a unit that names itself has nothing to do.
        unit.set_modules_to_backward_prefetch(backward[max(place - num_units, 0) : place][::-1] or [unit])


def _share_time(root: "FSDPModule", layout: Layout, device: "torch.device") -> None:
    """Say what of the communication goes on while the device computes."""
    from torch.distributed.fsdp import FSDPModule

    from stages.pretrain.parallel.overlap import AsyncReduceScatter, InTurnAllGather, InTurnReduceScatter

    module = cast("torch.nn.Module", root)
    sharded = cast("list[FSDPModule]", [part for part in module.modules() if isinstance(part, FSDPModule)])
    background = None
    if device.type == "cpu" and layout.overlap:
        root._set_unshard_async_op(True)
        if layout.replicas == 1:  # replicas add up what the reduction gave at once
            background = AsyncReduceScatter()
            for part in sharded:
                part.set_custom_reduce_scatter(background)
    if device.type == "cuda" and not layout.overlap:
        for part in sharded:
            part.set_custom_all_gather(InTurnAllGather())
            part.set_custom_reduce_scatter(InTurnReduceScatter())
    _SHARDED[module] = (not layout.reshards_after_forward, background)


@contextmanager
def reducing(model: "torch.nn.Module", wanted: bool) -> Iterator[None]:
    """Around forward and backward pass of one micro-batch: whether its gradients are reduced over the ranks, together
    with those of the micro-batches before it. Only the last one of a step need do so. All gradients are there when it
    is left.

    Until then what is gathered for the whole of a backward pass stays gathered: the root, or with sharding "gradients"
    everything.
    """
    from torch.distributed.fsdp import FSDPModule
    from torch.nn.parallel import DistributedDataParallel

    if isinstance(model, FSDPModule):
        keeps_all, background = _SHARDED[model]
        model.set_requires_gradient_sync(wanted)
        model.set_reshard_after_backward(wanted, recurse=keeps_all)
        yield
        if background is not None:
            background.settle()
    elif isinstance(model, DistributedDataParallel) and not wanted:
        with model.no_sync():
            yield
    else:
        yield


def reshard(model: "torch.nn.Module") -> None:
    """Give up what a forward pass without a backward pass has gathered, so that the model's parameters are its
    shards again."""
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def unwrapped(model: "torch.nn.Module") -> "torch.nn.Module":
    """The module whose parameters have transformers' names, of one that `spread` has returned."""
    from torch.nn.parallel import DistributedDataParallel

    return cast("torch.nn.Module", model.module) if isinstance(model, DistributedDataParallel) else model
