"""Numbers in eight bits: blockwise dynamic quantisation (Dettmers et al., 2022, "8-bit Optimizers via Block-wise
Quantization", sections 2.1 and 2.2).

A row is cut into blocks of BLOCK numbers, each with the greatest magnitude in it as its scale; no block crosses a row,
so that a matrix which is sharded by rows is quantised as a whole one is. A number divided by its scale becomes the
code of the nearest value in a table that spans seven orders of magnitude, with ever fewer values in each lower one.

Our table is symmetric and holds 1 and -1 themselves, so that the greatest number of a block comes back as it was.
"""

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

BLOCK = 256


def num_blocks(columns: int) -> int:
    """Blocks in a row; the last one may be shorter."""
    return -(-columns // BLOCK)


def quantise(values: "torch.Tensor", *, signed: bool) -> "tuple[torch.Tensor, torch.Tensor]":
    """float32[rows, columns] -> codes, uint8 of that shape, and scales, float32[rows, num_blocks(columns)]. Unless
    `signed`, no value may be negative."""
    import torch

    blocks = _blocks(values)
    scales = blocks.abs().amax(dim=-1)
    ratios = blocks / torch.where(scales > 0, scales, 1.0)[..., None]
    # The eleven digits of a half decide; as a whole number, its bits are a place in a table of codes.
    bits = ratios.half().view(torch.int16).int() & 0xFFFF
    codes = _code_of_half(signed, values.device).index_select(0, bits.flatten()).view(blocks.shape)
    return codes.flatten(1)[:, : values.shape[1]].contiguous(), scales


def dequantise(codes: "torch.Tensor", scales: "torch.Tensor", *, signed: bool) -> "torch.Tensor":
    """float32[rows, columns], what `quantise` had to within its error."""
    blocks = _blocks(codes)
    values = _table(signed, codes.device).index_select(0, blocks.flatten().int()).view(blocks.shape)
    values *= scales[..., None]
    return values.flatten(1)[:, : codes.shape[1]].contiguous()


def _blocks(rows: "torch.Tensor") -> "torch.Tensor":
    """[rows, columns] -> [rows, blocks, BLOCK], zeros where the last block is shorter."""
    import torch.nn.functional as F

    missing = -rows.shape[1] % BLOCK
    padded = F.pad(rows, (0, missing)) if missing else rows
    return padded.view(len(rows), num_blocks(rows.shape[1]), BLOCK)


@functools.lru_cache(maxsize=8)
def _table(signed: bool, device: "torch.device") -> "torch.Tensor":
    """float32[256]: the value of each code, ascending; signed: -1 to 1, the last one twice; else 0 to 1.

    Order of magnitude -e has 2^(bits - e) values evenly between a tenth of 10^-e and 10^-e, and those of the first one
    end with 1.
    """
    import torch

    bits = 6 if signed else 7
    positive: list[torch.Tensor] = []
    for order in range(bits, -1, -1):
        borders = torch.linspace(0.1, 1.0, 2 ** (bits - order) + 1, dtype=torch.float64)
        inner = borders[1:] if order == 0 else (borders[1:] + borders[:-1]) / 2
        positive.append(inner * 10.0**-order)
    above = torch.cat(positive)
    zero = torch.zeros(1, dtype=torch.float64)
    parts = [-above.flip(0), zero, above, torch.ones(1, dtype=torch.float64)] if signed else [zero, above]
    return torch.cat(parts).float().to(device)


@functools.lru_cache(maxsize=8)
def _code_of_half(signed: bool, device: "torch.device") -> "torch.Tensor":
    """uint8[65536]: the code of the value nearest to each half in [-1, 1] (or [0, 1]), by its bits. Others are of no
    use, NaN among them."""
    import torch

    table = _table(signed, torch.device("cpu")).double()[: 255 if signed else 256]
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16).double()
    codes = torch.bucketize(halves.nan_to_num(0.0), (table[1:] + table[:-1]) / 2)
    return codes.to(torch.uint8).to(device)
