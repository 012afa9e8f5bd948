"""Which parameters belong together: for the norms that are reported, for decay and for the learning rate."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.model.initialise import lr_multiplier
from stages.pretrain.parallel.spread import unwrapped

if TYPE_CHECKING:
    import torch

Group = Literal["embedding", "attention", "feed_forward", "norm", "head"]
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A parameter by the name that transformers gives it. decay: of the weight in a step of learning rate 1.
    learning_rate_ratio: what the learning rate is multiplied by."""

    name: str
    parameter: "torch.nn.Parameter"
    decay: float
    learning_rate_ratio: float

    @property
    def values(self) -> "torch.Tensor":
        """What this rank holds of it, sharing its memory. To be asked for anew each time: FSDP2 may move it."""
        return local(self.parameter.detach())

    @property
    def gradient(self) -> "torch.Tensor":
        """What this rank holds of its gradient."""
        assert self.parameter.grad is not None, f"{self.name} has no gradient"
        return local(self.parameter.grad)


def on_meta(weight: Weight) -> Weight:
    """The same without memory."""
    import torch

    return replace(weight, parameter=torch.nn.Parameter(weight.parameter.detach().to("meta")))


def local(tensor: "torch.Tensor") -> "torch.Tensor":
    """What this rank holds of a tensor, sharing its memory."""
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def weights(config: PretrainConfig, shape: ModelConfig, model: "torch.nn.Module") -> list[Weight]:
    """All parameters of `model`. shape: resolved.

    Weight decay stays what it is where the learning rate is lowered for the sake of the width: what a step takes off
    a weight is the product of both, and the best product does not depend on the width (Wortsman et al., 2023,
    "Small-scale proxies for large-scale Transformer training instabilities", on independent weight decay).
    """
    found = []
    for name, parameter in unwrapped(model).named_parameters():
        ratio = lr_multiplier(shape, name)
        decayed = decays(name, parameter.ndim, decay_embeddings=config.decay_embeddings)
        decay = config.weight_decay / ratio if decayed else 0.0
        found.append(Weight(name=name, parameter=parameter, decay=decay, learning_rate_ratio=ratio))
    return found


def group_of(name: str) -> Group:
    """The group of a parameter of a decoder. A tied output matrix is the embedding."""
    parts = name.split(".")
    if "embed_tokens" in parts:
        return "embedding"
    if "lm_head" in parts:
        return "head"
    if any("norm" in part for part in parts):
        return "norm"
    if "self_attn" in parts:
        return "attention"
    assert "mlp" in parts, f"no group is known for the parameter {name}"
    return "feed_forward"


def decays(name: str, num_dimensions: int, *, decay_embeddings: bool) -> bool:
    """Whether weight decay applies: to matrices, never to norms and biases, and to the embedding (which a tied output
    shares) by choice."""
    return num_dimensions > 1 and (decay_embeddings or group_of(name) != "embedding")


def is_layer_matrix(name: str, num_dimensions: int) -> bool:
    """Whether it is a matrix that maps activations to activations within a decoder layer."""
    return num_dimensions == 2 and group_of(name) in ("attention", "feed_forward")
