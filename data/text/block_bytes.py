"""Loads of many bytes at once for numba kernels, and what compilers have no word for in Python.

Written as LLVM's own vectors, so that each processor gets the widest instructions that it has. Numbers of a load are
little-endian: the first byte is the lowest, and bit k of a mask is byte k.
"""

import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

BLOCK_BYTES = 64

_BYTE, _WORD, _DOUBLE = ir.IntType(8), ir.IntType(64), ir.IntType(128)
_VECTOR = ir.VectorType(_BYTE, BLOCK_BYTES)
_ASCII_BITS = np.uint64(0x8080808080808080)

assert sys.byteorder == "little", "the kernels read several bytes as one number"


def intrinsic(generator: Callable[..., Any]) -> Any:
    """That of numba, untyped: a kernel calls it without the typing context."""
    return extending.intrinsic(generator)


def _splat(byte: int) -> ir.Constant:
    return ir.Constant(_VECTOR, [byte] * BLOCK_BYTES)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.bitcast(address, kind.as_pointer()), align=1)


def _place(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, _BYTE.as_pointer()), [index])


@intrinsic
def load8(typing_context: Any, values: Any, i: Any) -> Any:
    """Eight bytes values[i : i + 8] of a uint8 array as a number. They must be there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(builder, _place(context, builder, signature.args[0], *arguments), _WORD)

    return types.uint64(values, types.int64), generate


@intrinsic
def load8_at(typing_context: Any, address: Any) -> Any:
    """Eight bytes of memory, which must be there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(builder, builder.inttoptr(arguments[0], _WORD.as_pointer()), _WORD)

    return types.uint64(types.uint64), generate


@intrinsic
def word_masks(typing_context: Any, values: Any, i: Any) -> Any:
    """Of the 64 bytes values[i : i + 64], which must be there: (ASCII letters and digits, bytes from 0x80 on),
    uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _load(builder, _place(context, builder, signature.args[0], *arguments), _VECTOR)
        lower = builder.or_(block, _splat(0x20))
        letter = builder.icmp_unsigned("<", builder.sub(lower, _splat(ord("a"))), _splat(26))
        digit = builder.icmp_unsigned("<", builder.sub(block, _splat(ord("0"))), _splat(10))
        masks = [builder.or_(letter, digit), builder.icmp_signed("<", block, _splat(0))]
        return context.make_tuple(builder, signature.return_type, [builder.bitcast(mask, _WORD) for mask in masks])

    return types.UniTuple(types.uint64, 2)(values, types.int64), generate


@intrinsic
def letter_leads(typing_context: Any, values: Any, i: Any) -> Any:
    """Of the 64 bytes values[i : i + 64], which must be there, first bytes of characters whose class follows from
    that byte: (two bytes, U+0100 to U+027F and U+0400 to U+047F: letters; three bytes, U+B000 to U+CFFF: letters;
    three bytes, U+5000 to U+9FFF: Han; two bytes, U+00C0 to U+00FF: letters if the next byte is not in the last mask;
    bytes 0x97 and 0xB7)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _load(builder, _place(context, builder, signature.args[0], *arguments), _VECTOR)

        def between(first: int, last: int) -> Any:
            return builder.icmp_unsigned("<", builder.sub(block, _splat(first)), _splat(last - first + 1))

        masks = [
            builder.or_(between(0xC4, 0xC9), between(0xD0, 0xD1)),
            between(0xEB, 0xEC),
            between(0xE5, 0xE9),
            between(0xC3, 0xC3),
            builder.or_(between(0x97, 0x97), between(0xB7, 0xB7)),
        ]
        return context.make_tuple(builder, signature.return_type, [builder.bitcast(mask, _WORD) for mask in masks])

    return types.UniTuple(types.uint64, 5)(values, types.int64), generate


@intrinsic
def space_mask(typing_context: Any, values: Any, i: Any) -> Any:
    """Of the 64 bytes values[i : i + 64], which must be there: (ASCII white space, white space but for a space),
    uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _load(builder, _place(context, builder, signature.args[0], *arguments), _VECTOR)
        control = builder.icmp_unsigned("<", builder.sub(block, _splat(9)), _splat(5))
        space = builder.icmp_unsigned("==", block, _splat(32))
        masks = [builder.or_(control, space), control]
        return context.make_tuple(builder, signature.return_type, [builder.bitcast(mask, _WORD) for mask in masks])

    return types.UniTuple(types.uint64, 2)(values, types.int64), generate


@intrinsic
def pii_masks(typing_context: Any, values: Any, i: Any) -> Any:
    """Of the 64 bytes values[i : i + 64], which must be there: (digits, @, one of A B J z _ -), uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _load(builder, _place(context, builder, signature.args[0], *arguments), _VECTOR)
        marks = builder.icmp_unsigned("<", builder.sub(block, _splat(ord("A"))), _splat(2))
        for mark in b"Jz_-":
            marks = builder.or_(marks, builder.icmp_unsigned("==", block, _splat(mark)))
        digit = builder.icmp_unsigned("<", builder.sub(block, _splat(ord("0"))), _splat(10))
        masks = [digit, builder.icmp_unsigned("==", block, _splat(ord("@"))), marks]
        return context.make_tuple(builder, signature.return_type, [builder.bitcast(mask, _WORD) for mask in masks])

    return types.UniTuple(types.uint64, 3)(values, types.int64), generate


@intrinsic
def line_feed_mask(typing_context: Any, values: Any, i: Any) -> Any:
    """uint64: line feeds among the 64 bytes values[i : i + 64], which must be there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _load(builder, _place(context, builder, signature.args[0], *arguments), _VECTOR)
        return builder.bitcast(builder.icmp_unsigned("==", block, _splat(10)), _WORD)

    return types.uint64(values, types.int64), generate


@intrinsic
def copy_block(typing_context: Any, out: Any, o: Any, values: Any, i: Any) -> Any:
    """out[o : o + 64] = values[i : i + 64], which must be there, with each control byte of white space as a space."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _load(builder, _place(context, builder, signature.args[2], *arguments[2:]), _VECTOR)
        control = builder.icmp_unsigned("<", builder.sub(block, _splat(9)), _splat(5))
        block = builder.select(control, _splat(32), block)
        address = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(block, builder.bitcast(address, _VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, values, types.int64), generate


@intrinsic
def copy_bytes(typing_context: Any, out: Any, o: Any, values: Any, i: Any, count: Any) -> Any:
    """out[o : o + count] = values[i : i + count], which must be there, of two uint8 arrays."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = _place(context, builder, signature.args[0], *arguments[:2])
        origin = _place(context, builder, signature.args[2], *arguments[2:4])
        cgutils.raw_memcpy(builder, target, origin, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(out, types.int64, values, types.int64, types.int64), generate


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
def lower_case(chunk: np.uint64) -> np.uint64:
    """Eight bytes of a word with ASCII letters in lower case; digits have that bit, other bytes keep theirs."""
    return chunk | (~chunk & _ASCII_BITS) >> np.uint64(2)
