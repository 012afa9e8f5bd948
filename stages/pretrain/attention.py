"""Which tokens attend to which, and how each back end of transformers is told.

Positions say it all: a segment begins wherever the position is 0, and a token attends to the tokens of its own segment
up to itself, which are the `position + 1` latest ones. Resetting positions by itself would isolate nothing: they only
turn the rotary embedding.

Everything is passed to the model explicitly. Without a mask, transformers guesses from the positions whether a batch
holds several documents; a mask of four dimensions it takes as it is.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Our name of a back end: that of transformers.
BACKENDS = {"sdpa": "sdpa", "eager": "eager", "flex": "flex_attention"}


@dataclass(frozen=True)
class Attention:
    """How a model attends. `isolates`: whether segments are kept apart; if not, a token attends to the whole row up to
    itself. `dtype`: of the queries and keys as attention gets them."""

    backend: str
    isolates: bool
    dtype: "torch.dtype"

    def arguments(self, positions: "torch.Tensor") -> dict[str, Any]:
        """What a forward pass is given beside its tokens. positions: integers [rows, tokens], on the model's device.

        The mask is made here once, for all layers: [rows, 1, tokens, tokens] in `dtype`, a BlockMask for flex.
        """
        return {"position_ids": positions, "attention_mask": self._mask(positions)}

    def _mask(self, positions: "torch.Tensor") -> Any:
        import torch

        assert self.backend in BACKENDS, f"no way is known to tell {self.backend!r} what attends to what"
        if not self.isolates and self.backend == "sdpa":
            # Nothing is masked: transformers then leaves causality to the kernel, whose causal form is the fastest one.
            return torch.ones(positions.shape, dtype=torch.bool, device=positions.device)
        if not self.isolates:
            places = torch.arange(positions.shape[1], device=positions.device)[None]
            positions = places.expand_as(positions) if self.backend == "flex" else places
        return _block_mask(positions) if self.backend == "flex" else _additive_mask(positions, self.dtype)


def _additive_mask(positions: "torch.Tensor", dtype: "torch.dtype") -> "torch.Tensor":
    """dtype[rows, 1, tokens, tokens]: 0 where a query (third axis) attends to a key, else the lowest finite number.

    That number and not minus infinity: a block of keys that are all masked would have no maximum, and kernels differ
    in what they make of it. Its weight is an exact zero all the same.
    """
    import torch

    rows, tokens = positions.shape
    place = torch.arange(tokens, device=positions.device)
    query = place[:, None]
    first = (query - positions[:, :, None]).to(place.dtype)
    attends = place >= first
    attends &= place <= query
    mask = torch.full((rows, 1, tokens, tokens), torch.finfo(dtype).min, dtype=dtype, device=positions.device)
    return mask.masked_fill_(attends[:, None], 0.0)


def _block_mask(positions: "torch.Tensor") -> Any:
    """The same as a BlockMask, which holds no matrix of tokens by tokens."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    rows, tokens = positions.shape
    first = torch.arange(tokens, device=positions.device) - positions

    def attends(row: Any, head: Any, query: Any, key: Any) -> Any:
        return (key <= query) & (key >= first[row, query])

    return create_block_mask(attends, rows, None, tokens, tokens, device=str(positions.device))
