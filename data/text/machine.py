"""Single instructions that numba has no words for: eight bytes of a flat array as one number, and bits of numbers.

Numbers are little-endian: the first byte is the lowest. Nothing is checked: a place outside an array is our mistake.
"""

import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

_BYTE, _WORD, _DOUBLE = ir.IntType(8), ir.IntType(64), ir.IntType(128)
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)

assert sys.byteorder == "little", "the kernels read several bytes as one number"


def intrinsic(generator: Callable[..., Any]) -> Any:
    """That of numba, untyped: a kernel calls it without the typing context."""
    return extending.intrinsic(generator)


def address_of(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """LLVM's address of an element of an array."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def unaligned(builder: Any, address: Any, kind: Any) -> Any:
    """LLVM's load of something of any kind, from any address."""
    return builder.load(builder.bitcast(address, kind.as_pointer()), align=1)


@intrinsic
def load8(typing_context: Any, values: Any, i: Any) -> Any:
    """uint64: eight bytes values[i : i + 8] of a uint8 array, which must be there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return unaligned(builder, address_of(context, builder, signature.args[0], *arguments), _WORD)

    return types.uint64(values, types.int64), generate


@intrinsic
def load8_at(typing_context: Any, address: Any) -> Any:
    """uint64: eight bytes of memory, which must be there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return unaligned(builder, builder.inttoptr(arguments[0], _WORD.as_pointer()), _WORD)

    return types.uint64(types.uint64), generate


@intrinsic
def store8(typing_context: Any, values: Any, i: Any, word: Any) -> Any:
    """Writes a uint64 to values[i : i + 8] of a uint8 array, which must be there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = address_of(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(address, _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.uint64), generate


@intrinsic
def copy_bytes(typing_context: Any, out: Any, o: Any, values: Any, i: Any, count: Any) -> Any:
    """out[o : o + count] = values[i : i + count], which must be there, of two uint8 arrays."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = address_of(context, builder, signature.args[0], *arguments[:2])
        origin = address_of(context, builder, signature.args[2], *arguments[2:4])
        cgutils.raw_memcpy(builder, target, origin, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(out, types.int64, values, types.int64, types.int64), generate


@intrinsic
def fetch(typing_context: Any, array: Any, i: Any) -> Any:
    """Asks the memory for an element of a flat array that will be read soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        address = builder.bitcast(address_of(context, builder, array, *arguments), _BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(prefetch, [address, number(0), number(3), number(1)])  # to read, into all caches, data
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def ones(typing_context: Any, x: Any) -> Any:
    """Number of bits that are set in a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def trailing_zeros(typing_context: Any, x: Any) -> Any:
    """int64: place of the lowest bit of a uint64 that is set, 64 if none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def folded_product(typing_context: Any, a: Any, b: Any) -> Any:
    """uint64: upper half of the 128-bit product of two uint64, xor the lower half."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.mul(builder.zext(arguments[0], _DOUBLE), builder.zext(arguments[1], _DOUBLE))
        upper = builder.trunc(builder.lshr(product, ir.Constant(_DOUBLE, 64)), _WORD)
        return builder.xor(upper, builder.trunc(product, _WORD))

    return types.uint64(types.uint64, types.uint64), generate


@numba.njit(nogil=True, cache=True, inline="always")
def zero_bytes(word: np.uint64) -> np.uint64:
    """Bits of which the lowest marks the first zero byte of a word; 0 if there is none. Of a word with a zero byte,
    bits above the lowest may be wrong."""
    return (word - _ONES) & ~word & _HIGH


@numba.njit(nogil=True, cache=True, inline="always")
def first_byte(bits: np.uint64) -> int:
    """Which byte of a word, which is not 0, holds its lowest set bit: 0 to 7."""
    return trailing_zeros(bits) >> 3


@numba.njit(nogil=True, cache=True, inline="always")
def lower_case(word: np.uint64) -> np.uint64:
    """Eight bytes of words with ASCII letters in lower case; digits have that bit, other bytes keep theirs."""
    return word | (~word & _HIGH) >> np.uint64(2)
