"""How an optimizer keeps a moment of a parameter: as it is, or in eight bits.

A moment is sharded as its parameter is. `read` gives what this rank holds of it in float32, `write` takes a new value.
"""

from typing import TYPE_CHECKING, Protocol

from stages.pretrain.optimise.groups import Weight, local

if TYPE_CHECKING:
    import torch


class Moment(Protocol):
    """One moment of one parameter; 0 at first."""

    def read(self) -> "torch.Tensor":
        """float32, of the shape of what this rank holds of the parameter; may be changed in place before `write`."""
        ...

    def write(self, value: "torch.Tensor", skip: "torch.Tensor") -> None:
        """Keep what `read` gave, changed or not; where skip (float32 scalar) is 1.0, all stays as it was."""
        ...

    def tensors(self) -> "dict[str, torch.Tensor]":
        """What it is kept as, by a suffix of its name; DTensors where the parameter is one."""
        ...


class Plain:
    """In float32, in place."""

    def __init__(self, weight: Weight) -> None:
        import torch

        self._tensor = torch.zeros_like(weight.parameter, requires_grad=False)

    def read(self) -> "torch.Tensor":
        return local(self._tensor)

    def write(self, value: "torch.Tensor", skip: "torch.Tensor") -> None:
        """Nothing is left to do: whoever has changed it in place has heeded `skip`."""

    def tensors(self) -> "dict[str, torch.Tensor]":
        return {"": self._tensor}


class EightBit:
    """In eight bits, by blocks of a row. is_root: the moment is never negative, and what is kept is its root.

    A second moment spans twice as many orders of magnitude as a first one; what is small in its block would become 0,
    and a division by its root would throw the weight away. The root spans as many as the codes do.
    """

    def __init__(self, weight: Weight, *, is_root: bool) -> None:
        import torch

        from stages.pretrain.optimise.eight_bit import num_blocks

        parameter = weight.parameter
        self._is_root = is_root
        self._codes = torch.zeros_like(parameter, requires_grad=False, dtype=torch.uint8)
        self._scales = _zeros_like_rows(parameter, num_blocks(parameter.shape[1]))

    def read(self) -> "torch.Tensor":
        from stages.pretrain.optimise.eight_bit import dequantise

        found = dequantise(local(self._codes), local(self._scales), signed=not self._is_root)
        return found.square_() if self._is_root else found

    def write(self, value: "torch.Tensor", skip: "torch.Tensor") -> None:
        import torch

        from stages.pretrain.optimise.eight_bit import quantise

        quantised = quantise(value.sqrt() if self._is_root else value, signed=not self._is_root)
        for kept, new in zip((local(self._codes), local(self._scales)), quantised, strict=True):
            kept.copy_(torch.where(skip.bool(), kept, new))

    def tensors(self) -> "dict[str, torch.Tensor]":
        return {".codes": self._codes, ".scales": self._scales}


def _zeros_like_rows(parameter: "torch.Tensor", columns: int) -> "torch.Tensor":
    """float32[rows, columns], sharded by rows as the parameter is."""
    import torch
    from torch.distributed import tensor as sharded

    if not isinstance(parameter, sharded.DTensor):
        return torch.zeros(parameter.shape[0], columns, device=parameter.device)
    by_rows = all(not placement.is_shard() or placement.is_shard(0) for placement in parameter.placements)
    assert by_rows, f"blocks of a row would be cut: {parameter.placements}"
    part = torch.zeros(parameter.to_local().shape[0], columns, device=parameter.to_local().device)
    shape = torch.Size((parameter.shape[0], columns))
    return sharded.DTensor.from_local(
        part, parameter.device_mesh, parameter.placements, run_check=False, shape=shape, stride=(columns, 1)
    )
