"""Eight bytes of a text as one number, for kernels that look for a byte and write what they read."""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types

from data.text.block_bytes import intrinsic, trailing_zeros

_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)


@intrinsic
def store8(typing_context: Any, values: Any, place: Any, word: Any) -> Any:
    """Writes a uint64 to values[place : place + 8] of a uint8 array, which must be there."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(values, types.intp, types.uint64), build


@numba.njit(nogil=True, inline="always")
def zero_bytes(word: np.uint64) -> np.uint64:
    """Bits of which the lowest marks the first zero byte of a word; 0 if there is none. Of a word with a zero byte,
    bits above the lowest may be wrong."""
    return (word - _ONES) & ~word & _HIGH


@numba.njit(nogil=True, inline="always")
def first_byte(bits: np.uint64) -> int:
    """Which byte of a word, which is not 0, holds its lowest set bit: 0 to 7."""
    return trailing_zeros(bits) >> 3
