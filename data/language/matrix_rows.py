"""Sums of rows of matrices, without a check of any place: one outside a matrix is our mistake."""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types

from data.text.machine import intrinsic

BLOCK = 16  # elements that are added at a time
Row = int | np.int64


@intrinsic
def add_block(typing_context: Any, target: Any, target_place: Any, source: Any, source_place: Any) -> Any:
    """Adds BLOCK elements of one flat float32 array to those of another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = ir.VectorType(ir.FloatType(), BLOCK).as_pointer()
        pointers = []
        for kind, array, place in ((target, *arguments[:2]), (source, *arguments[2:])):
            data = context.make_array(kind)(context, builder, array).data
            pointers.append(builder.bitcast(builder.gep(data, [place]), block))
        loaded = [builder.load(pointer, align=4) for pointer in pointers]
        builder.store(builder.fadd(*loaded), pointers[0], align=4)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64), generate


@numba.njit(nogil=True, cache=True)
def add(target: np.ndarray, target_row: Row, source: np.ndarray, source_row: Row, dimension: int) -> None:
    """Adds a row of a flat float32 matrix to a row of another one. dimension: elements of a row, a multiple of
    BLOCK."""
    for block in range(dimension // BLOCK):
        add_block(target, target_row * dimension + block * BLOCK, source, source_row * dimension + block * BLOCK)
