"""Which tokens attend to which, and how each back end of transformers is told.

Positions say it all: a document begins wherever the position is 0, and a token attends to the tokens of its own
document up to itself, which are the `position + 1` latest ones. Resetting positions by itself would isolate nothing:
they only turn the rotary embedding.

Everything is passed to the model explicitly, and transformers decides nothing. Left to itself it reads masks and
positions to find out whether a batch holds several documents, or whether the causal kernel will do; on a GPU each such
look makes the host wait. A mask of four dimensions it takes as it is; and where attention goes by a name that has no
function to make masks, it passes on what it is given, none too.

| back end | documents kept apart                           | a row as one                          |
|----------|------------------------------------------------|---------------------------------------|
| sdpa     | CPU: kernels told the borders; GPU: a mask     | CPU: a border for each row; GPU: its  |
|          |                                                | causal kernel                         |
| flash    | its kernel, told the borders                   | the same, with a border for each row  |
| flex     | blocks that are computed, and a function       | the same                              |
| eager    | a mask                                         | a mask                                |
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from data.errors import InputError

if TYPE_CHECKING:
    import torch

# Our name of a back end: the one that transformers knows it by.
BACKENDS = {"sdpa": "longhaul_sdpa", "eager": "eager", "flash": "longhaul_flash", "flex": "flex_attention"}
BORDERS = "document_borders"  # the argument that a decoder layer hands on to `_attend`
BLOCK_TOKENS = 128  # queries, and keys, in a block of flex_attention


def implementation(backend: str) -> str:
    """What a model that is to be told by `Attention` is built with: the name that transformers knows a back end by. For
    sdpa and flash that is a function of ours, which no function to make masks belongs to.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for ours in ("sdpa", "flash"):
        ALL_ATTENTION_FUNCTIONS.register(BACKENDS[ours], _attend)
    return BACKENDS[backend]


def require_usable(backend: str, device: "torch.device", dtype: "torch.dtype") -> None:
    """Raise InputError unless a model can be trained with this back end on this device, where queries and keys are of
    `dtype`."""
    import torch

    if backend in ("flash", "flex") and device.type == "cpu":
        raise InputError(f'pretrain.attention = "{backend}" has no backward pass on a CPU; use "sdpa" or "eager" here')
    if backend == "flash" and dtype not in (torch.bfloat16, torch.float16):
        raise InputError(
            'pretrain.attention = "flash" computes in half precision only: set pretrain.precision = "bf16", or use '
            '"sdpa" or "flex"'
        )


def _attend(
    module: "torch.nn.Module",
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    attention_mask: "torch.Tensor | None",
    *,
    scaling: float,
    **settings: Any,
) -> "tuple[torch.Tensor, None]":
    """[rows, tokens, heads, width]: attention as transformers has it computed. Without borders and mask it is that of a
    row as one."""
    borders = settings.pop(BORDERS, None)
    if borders is not None:
        from stages.pretrain.model.documents import attend

        return attend(query, key, value, borders, scale=scaling), None
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **settings)


@dataclass(frozen=True)
class Attention:
    """How a model attends. `isolates`: whether segments are kept apart; if not, a token attends to the whole row up to
    itself. `dtype`: of the queries and keys as attention gets them."""

    backend: str
    isolates: bool
    dtype: "torch.dtype"

    def arguments(self, positions: "torch.Tensor", borders: "torch.Tensor | None" = None) -> dict[str, Any]:
        """What a forward pass is given beside its tokens. positions: integers [rows, tokens], on the model's device;
        borders: as `stages.pretrain.model.documents` has them, where they are known, so that the host need not wait for
        a device to find them.

        A mask is made here once, for all layers: [rows, 1, tokens, tokens] in `dtype`, or a BlockMask for flex.
        """
        assert self.backend in BACKENDS, f"no way is known to tell {self.backend!r} what attends to what"
        if self._takes_borders(positions.device.type):
            found = self._borders(positions, borders)
            return {"position_ids": positions, "attention_mask": None, BORDERS: found}
        return {"position_ids": positions, "attention_mask": self._mask(positions)}

    def _takes_borders(self, device: str) -> bool:
        return self.backend == "flash" or (self.backend == "sdpa" and device == "cpu")

    def _borders(self, positions: "torch.Tensor", known: "torch.Tensor | None") -> "torch.Tensor":
        import torch

        from stages.pretrain.model.documents import borders_of

        if not self.isolates:
            rows, tokens = positions.shape
            return torch.arange(0, rows * tokens + 1, tokens, dtype=torch.int32, device=positions.device)
        borders = borders_of(positions) if known is None else known
        # How many documents there are differs from batch to batch: what is compiled once is to do for all.
        torch._dynamo.maybe_mark_dynamic(borders, 0)
        return borders

    def _mask(self, positions: "torch.Tensor") -> Any:
        import torch

        if not self.isolates and self.backend == "sdpa":
            return None
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
    """The same as a BlockMask, which holds no matrix of tokens by tokens and is made without one.

    It is enough to know the lowest and the highest place at which the segments of a block of queries begin. A block of
    keys counts if it is not later than the queries and does not end before the lowest; and each query attends to all of
    it, so that the kernel need not ask `attends`, if it is earlier and does not begin before the highest.
    """
    import torch
    import torch.nn.functional as F
    from torch.nn.attention.flex_attention import BlockMask

    rows, tokens = positions.shape
    first = torch.arange(tokens, dtype=positions.dtype, device=positions.device) - positions
    num_blocks = -(-tokens // BLOCK_TOKENS)
    # Where the last block is not full, `tokens` stands for a segment that no key belongs to.
    borders = F.pad(first, (0, num_blocks * BLOCK_TOKENS - tokens), value=tokens).view(rows, 1, num_blocks, -1)
    lowest, highest = borders.amin(-1, keepdim=True), borders.amax(-1, keepdim=True)
    keys = torch.arange(num_blocks, device=positions.device)
    queries, begin = keys[:, None], keys * BLOCK_TOKENS
    whole = (keys < queries) & (highest <= begin)
    partial = (keys <= queries) & (lowest < begin + BLOCK_TOKENS) & ~whole

    def attends(row: Any, head: Any, query: Any, key: Any) -> Any:
        return (key <= query) & (key >= first[row, query])

    return BlockMask.from_kv_blocks(
        *_listed(partial), *_listed(whole), BLOCK_SIZE=BLOCK_TOKENS, mask_mod=attends, seq_lengths=(tokens, tokens)
    )


def _listed(blocks: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
    """bool[..., n] -> int32[...], how many are set, and int32[..., n]: where, ascending, and behind them the others."""
    import torch

    places = torch.argsort(blocks.to(torch.int8), dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), places.to(torch.int32)
