"""What of a model is compiled: the `forward` of each decoder layer, so that hooks on a layer (those of sharding and of
the monitor) stay outside.

All layers are one code with other weights, so they share one compilation. On a CPU this takes as much off a step as
compiling the whole model does, norm and embedding included, and starts in a fraction of the time.
"""

from typing import TYPE_CHECKING

from stages.pretrain.model.build import decoder_layers

if TYPE_CHECKING:
    import torch


def compile_layers(model: "torch.nn.Module", *, backend: str = "inductor") -> None:
    """Let each layer's `forward` be compiled when it first runs. In place, before the model is sharded, on meta as
    well; after whatever replaces the `forward` of layers. backend: of torch.compile."""
    import torch

    for layer in decoder_layers(model):
        layer.forward = torch.compile(layer.forward, backend=backend)
