"""Text eight or sixty-four bytes at a time: what the quality kernels are made of.

A *block* is the eight bytes of a text from some place on as a little-endian uint64, zero behind the text's end. A
*mask* is a uint64 whose bit k says something about byte k of the sixty-four from some place on; no bit is set behind
the text's end.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from data.text.inner import inner
from data.text.machine import load8, ones, trailing_zeros

_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_LOWER_CASE = np.uint64(0x2020202020202020)
_FROM_A, _ABOVE_Z = np.uint64(0x1F1F1F1F1F1F1F1F), np.uint64(0x0505050505050505)  # 0x80 - 'a', 0x7F - 'z'
MASK_BYTES = 64
_njit: Any = numba.njit  # whose types lack two of these arguments
inlined = _njit(nogil=True, cache=True, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_KEY, _KEY_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


@intrinsic
def _lower_masks(typing_context, values, place):
    """(ASCII letters and digits, newlines, bytes that go on with a character) among 64 bytes, which must be there."""

    def build(context, builder, signature, arguments):
        vector, word = ir.VectorType(ir.IntType(8), MASK_BYTES), ir.IntType(64)

        def all_of(byte: int) -> ir.Constant:
            return ir.Constant(vector, [byte] * MASK_BYTES)

        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), vector.as_pointer())
        block = builder.load(pointer, align=1)
        letter = builder.sub(builder.or_(block, all_of(0x20)), all_of(ord("a")))
        digit = builder.sub(block, all_of(ord("0")))
        is_letter = builder.icmp_unsigned("<", letter, all_of(26))
        masks = (
            builder.or_(is_letter, builder.icmp_unsigned("<", digit, all_of(10))),
            builder.icmp_unsigned("==", block, all_of(10)),
            builder.icmp_signed("<", block, all_of(0xC0)),
        )
        return context.make_tuple(builder, signature.return_type, [builder.bitcast(mask, word) for mask in masks])

    return types.UniTuple(types.uint64, 3)(values, types.int64), build


# To a type checker the call of an intrinsic lacks the argument that numba gives it.
_masks: Any = _lower_masks


@inner
def _last_block(values: np.ndarray, i: int, end: int) -> np.uint64:
    """As `load_block`, byte by byte."""
    block = _ZERO
    for k in range(min(end - i, 8)):
        block |= np.uint64(values[i + k]) << np.uint64(8 * k)
    return block


@inlined
def load_block(values: np.ndarray, i: int, end: int) -> np.uint64:
    """The block of a text that ends before `end`, from i on."""
    if i + 8 <= end:
        return load8(values, i)
    if i + 8 <= len(values):
        return load8(values, i) & first_bytes(end - i)
    return _last_block(values, i, end)


@inlined
def first_bytes(count: int) -> np.uint64:
    """All bits of the first `count` bytes of a block; 0 to 7 of them."""
    return (np.uint64(1) << np.uint64(8 * count)) - np.uint64(1)


@inlined
def ascii_letters(block: np.uint64) -> np.uint64:
    """Mask of the bytes that are ASCII letters."""
    low = (block & _LOW_BITS) | _LOWER_CASE
    return (low + _FROM_A) & ~(low + _ABOVE_Z) & ~block & _HIGH_BITS


@inner
def _alphanumeric(byte: int) -> bool:
    return 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122


@inner
def _last_masks(values: np.ndarray, i: int, end: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """As `_text_masks`, byte by byte."""
    alphanumeric = newlines = continued = _ZERO
    for k in range(min(end - i, MASK_BYTES)):
        byte, bit = values[i + k], _ONE << np.uint64(k)
        alphanumeric |= bit if _alphanumeric(byte) else _ZERO
        newlines |= bit if byte == 10 else _ZERO
        continued |= bit if byte & 0xC0 == 0x80 else _ZERO
    return alphanumeric, newlines, continued


@inlined
def _text_masks(values: np.ndarray, i: int, end: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """(ASCII letters and digits, newlines, bytes that go on with a character) of a text that ends before `end`."""
    if i + MASK_BYTES > len(values):
        return _last_masks(values, i, end)
    alphanumeric, newlines, continued = _masks(values, i)
    if end - i < MASK_BYTES:
        below = (_ONE << np.uint64(end - i)) - _ONE
        return alphanumeric & below, newlines & below, continued & below
    return alphanumeric, newlines, continued


@inlined
def alphanumeric_mask(values: np.ndarray, i: int, end: int) -> np.uint64:
    """Mask of the ASCII letters and digits from i on."""
    return _text_masks(values, i, end)[0]


@inlined
def run_length(mask: np.uint64) -> int:
    """How many of the first bytes have their bit."""
    return MASK_BYTES if ~mask == _ZERO else trailing_zeros(~mask)


@inner
def alphanumeric_end(values: np.ndarray, i: int, end: int) -> int:
    """Where the run of ASCII letters and digits that begins at i ends."""
    while i < end:
        length = run_length(alphanumeric_mask(values, i, end))
        i += length
        if length < MASK_BYTES:
            break
    return min(i, end)


@inlined
def line_end(values: np.ndarray, i: int, end: int) -> tuple[int, int]:
    """(where the next newline from i on stands, or `end`; bytes before it that go on with a character)."""
    continued_before = 0
    while i < end:
        _, newlines, continued = _text_masks(values, i, end)
        if newlines != _ZERO:
            length = trailing_zeros(newlines)
            return i + length, continued_before + ones(continued & ((_ONE << np.uint64(length)) - _ONE))
        continued_before += ones(continued)
        i += MASK_BYTES
    return end, continued_before


@numba.njit(nogil=True, cache=True)
def count_lines(values: np.ndarray, i: int, end: int) -> int:
    """How many lines of values[i:end] are not empty, or one more."""
    found, before = 1, _ZERO
    while i < end:
        newlines = _text_masks(values, i, end)[1]
        found += ones(newlines & ~((newlines << _ONE) | before))
        before = newlines >> np.uint64(MASK_BYTES - 1)
        i += MASK_BYTES
    return found


@inlined
def continuation_bytes(block: np.uint64) -> int:
    """How many bytes of the block go on with a character that began before them."""
    return ones(block & ~(block << np.uint64(1)) & _HIGH_BITS)


@inlined
def mix(h: np.uint64, block: np.uint64) -> np.uint64:
    """A hash `h` continued by a block."""
    h = (h ^ block) * _KEY
    return h ^ (h >> np.uint64(32))


@inlined
def hash_text(values: np.ndarray, begin: int, end: int) -> np.uint64:
    """Of the text values[begin:end]."""
    h = np.uint64(end - begin)
    for i in range(begin, end, 8):
        h = mix(h, load_block(values, i, end))
    return h


@inlined
def is_new(table: np.ndarray, mask: np.uint64, key: np.uint64) -> bool:
    """Whether an open-addressed set (uint64, 0 is an empty place) lacked the key, which it then holds."""
    key |= np.uint64(1)
    place = (key * _KEY_2) >> np.uint64(32) & mask
    while table[place] != _ZERO:
        if table[place] == key:
            return False
        place = (place + np.uint64(1)) & mask
    table[place] = key
    return True
