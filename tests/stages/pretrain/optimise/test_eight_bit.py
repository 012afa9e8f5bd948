"""A user relies on: what is kept in eight bits comes back nearly as it was, wherever its rows lie."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.pretrain.optimise.eight_bit import BLOCK, dequantise, num_blocks, quantise
from stages.pretrain.optimise.moments import EightBit
from tests.stages.pretrain.optimise import made


def values(rows: int, columns: int, *, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    """Normal numbers times powers of ten of a normal exponent: several orders of magnitude in a block."""
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.randn(rows, columns, generator=generator) * spread / 2
    return torch.randn(rows, columns, generator=generator) * 10**exponents


def reference(block: torch.Tensor, *, signed: bool) -> tuple[list[float], float]:
    """Block by block in plain Python: the nearest of all values that the codes stand for, and the scale."""
    bits = 6 if signed else 7
    table = [0.0]
    for order in range(bits + 1):
        count = 2 ** (bits - order)
        for number in range(count):
            place = number + 1 if order == 0 else number + 0.5
            table.append((0.1 + 0.9 * place / count) * 10.0**-order)
    if signed:
        table += [-value for value in table]
    scale = block.abs().max().item()
    return [min(table, key=lambda value: abs(value - x / (scale or 1))) * scale for x in block.tolist()], scale


@pytest.mark.parametrize("signed", [True, False])
def test_each_number_becomes_the_nearest_one_that_a_code_stands_for(signed: bool) -> None:
    rows = values(3, BLOCK + 37)
    rows = rows if signed else rows.abs()
    codes, scales = quantise(rows, signed=signed)
    assert codes.dtype == torch.uint8 and codes.shape == rows.shape and scales.shape == (3, 2)
    found = dequantise(codes, scales, signed=signed)
    for row in range(3):
        for block, part in enumerate((slice(0, BLOCK), slice(BLOCK, None))):
            expected, scale = reference(rows[row, part], signed=signed)
            assert scales[row, block].item() == scale
            # On the edge between two values a half, which has eleven digits, decides for the other one.
            near = torch.tensor(expected)
            apart = (found[row, part] - near).abs()
            assert (apart <= 2e-3 * near.abs() + 1e-8 * scale).float().mean() > 0.97
            error, best = (found[row, part] - rows[row, part]).abs(), (near - rows[row, part]).abs()
            assert (error <= best + 1e-3 * rows[row, part].abs() + 1e-7 * scale).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.sampled_from([1, 7, BLOCK, BLOCK + 1, 3 * BLOCK]), st.integers(0, 2**20), st.booleans())
def test_the_error_is_small_and_what_came_back_comes_back_as_it_is(
    rows: int, columns: int, seed: int, signed: bool
) -> None:
    given = values(rows, columns, seed=seed)
    given = given if signed else given.abs()
    found = dequantise(*quantise(given, signed=signed), signed=signed)
    padded = torch.nn.functional.pad(given.abs(), (0, -columns % BLOCK)).view(rows, num_blocks(columns), BLOCK)
    scale = padded.amax(-1).repeat_interleave(BLOCK, dim=1)[:, :columns]
    first_order = given.abs() > 0.1 * scale
    width = 0.9 / (64 if signed else 128)
    assert ((found - given).abs() <= 0.55 * width * scale)[first_order].all()
    assert ((found - given).abs() <= (0.02 if signed else 0.01) * scale).all()
    assert torch.equal(found.sign() * (found != 0), given.sign() * (found != 0)), "a number has changed its sign"
    assert torch.equal(found[given.abs() == scale], given[given.abs() == scale]), "the greatest number is kept exactly"
    again = quantise(found, signed=signed)
    assert torch.equal(dequantise(*again, signed=signed), found)


def test_rows_by_themselves_are_as_among_others() -> None:
    """So that a matrix that is sharded by rows holds the codes of a whole one."""
    whole = values(7, 300)
    for start, end in ((0, 3), (3, 4), (4, 7), (7, 7)):
        for part, of_all in zip(quantise(whole[start:end], signed=True), quantise(whole, signed=True), strict=True):
            assert torch.equal(part, of_all[start:end])


def test_a_block_of_zeros_stays_one() -> None:
    codes, scales = quantise(torch.zeros(2, 10), signed=True)
    assert not scales.any() and not dequantise(codes, scales, signed=True).any()
    assert not dequantise(torch.zeros_like(codes), scales, signed=True).any(), "codes of new states"


def test_a_small_second_moment_beside_a_large_one_does_not_vanish() -> None:
    """Eight orders of magnitude below its block's greatest its root is four below. Kept as itself it would be gone, and
    the update without bounds."""
    square = torch.tensor([[1.0, 1e-8]])
    moment = EightBit(made.weight(torch.zeros(1, 2)), is_root=True)
    moment.write(square.clone(), torch.tensor(0.0))
    assert moment.read()[0].tolist() == pytest.approx([1.0, 1e-8], rel=0.2)
    assert dequantise(*quantise(square, signed=False), signed=False)[0, 1] == 0


def test_what_is_skipped_is_not_written() -> None:
    moment = EightBit(made.weight(torch.zeros(2, 5)), is_root=False)
    moment.write(values(2, 5), torch.tensor(0.0))
    before = {name: tensor.clone() for name, tensor in moment.tensors().items()}
    moment.write(torch.full((2, 5), float("nan")), torch.tensor(1.0))
    assert all(torch.equal(tensor, before[name]) for name, tensor in moment.tensors().items())
    moment.write(torch.ones(2, 5), torch.tensor(0.0))
    assert not torch.equal(moment.tensors()[".scales"], before[".scales"])
