"""Which of 64 bytes are of a kind, as the bits of one number: bit k is byte k.

Written as LLVM's own vectors, so that each processor gets the widest instructions that it has. Nothing is checked: all
64 bytes must be there.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from data.text.machine import address_of, intrinsic, unaligned

BLOCK_BYTES = 64

_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(ir.IntType(8), BLOCK_BYTES)


def _splat(byte: int) -> ir.Constant:
    return ir.Constant(_VECTOR, [byte] * BLOCK_BYTES)


class _Block:
    """64 bytes in a register, as a kernel is compiled."""

    def __init__(self, builder: Any, values: Any) -> None:
        self.builder, self.values = builder, values

    def between(self, first: int, last: int) -> Any:
        offset = self.builder.sub(self.values, _splat(first))
        return self.builder.icmp_unsigned("<", offset, _splat(last - first + 1))

    def equal(self, byte: int) -> Any:
        return self.builder.icmp_unsigned("==", self.values, _splat(byte))

    def either(self, first: Any, *others: Any) -> Any:
        for other in others:
            first = self.builder.or_(first, other)
        return first

    def letter(self) -> Any:
        lower = _Block(self.builder, self.builder.or_(self.values, _splat(0x20)))
        return lower.between(ord("a"), ord("z"))

    def control(self) -> Any:
        """White space but for a space."""
        return self.between(9, 13)


def _masks(values: Any, classify: Callable[[_Block], list[Any]], count: int) -> Any:
    """An intrinsic of (values, i) that gives `count` masks of values[i : i + 64]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = address_of(context, builder, signature.args[0], *arguments)
        block = _Block(builder, unaligned(builder, address, _VECTOR))
        masks = [builder.bitcast(mask, _WORD) for mask in classify(block)]
        return masks[0] if count == 1 else context.make_tuple(builder, signature.return_type, masks)

    found = types.uint64 if count == 1 else types.UniTuple(types.uint64, count)
    return found(values, types.int64), generate


@intrinsic
def word_masks(typing_context: Any, values: Any, i: Any) -> Any:
    """(ASCII letters and digits, bytes from 0x80 on): uint64."""

    def classify(block: _Block) -> list[Any]:
        return [block.either(block.letter(), block.between(ord("0"), ord("9"))), block.between(0x80, 0xFF)]

    return _masks(values, classify, 2)


@intrinsic
def letter_leads(typing_context: Any, values: Any, i: Any) -> Any:
    """First bytes of characters whose class follows from that byte: (two bytes, U+0100 to U+027F and U+0400 to U+047F:
    letters; three bytes, U+B000 to U+CFFF: letters; three bytes, U+5000 to U+9FFF: Han; two bytes, U+00C0 to U+00FF:
    letters if the next byte is not in the last mask; bytes 0x97 and 0xB7)."""

    def classify(block: _Block) -> list[Any]:
        return [
            block.either(block.between(0xC4, 0xC9), block.between(0xD0, 0xD1)),
            block.between(0xEB, 0xEC),
            block.between(0xE5, 0xE9),
            block.equal(0xC3),
            block.either(block.equal(0x97), block.equal(0xB7)),
        ]

    return _masks(values, classify, 5)


@intrinsic
def space_mask(typing_context: Any, values: Any, i: Any) -> Any:
    """uint64: ASCII white space."""
    return _masks(values, lambda block: [block.either(block.control(), block.equal(32))], 1)


@intrinsic
def pii_masks(typing_context: Any, values: Any, i: Any) -> Any:
    """(digits, @, one of A B J z _ -): uint64."""

    def classify(block: _Block) -> list[Any]:
        marks = block.either(block.between(ord("A"), ord("B")), *(block.equal(mark) for mark in b"Jz_-"))
        return [block.between(ord("0"), ord("9")), block.equal(ord("@")), marks]

    return _masks(values, classify, 3)


@intrinsic
def line_feed_mask(typing_context: Any, values: Any, i: Any) -> Any:
    """uint64: line feeds."""
    return _masks(values, lambda block: [block.equal(10)], 1)


@intrinsic
def copy_block(typing_context: Any, out: Any, o: Any, values: Any, i: Any) -> Any:
    """out[o : o + 64] = values[i : i + 64], with each control byte of white space as a space."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        origin = address_of(context, builder, signature.args[2], *arguments[2:])
        block = _Block(builder, unaligned(builder, origin, _VECTOR))
        copied = builder.select(block.control(), _splat(32), block.values)
        target = address_of(context, builder, signature.args[0], *arguments[:2])
        builder.store(copied, builder.bitcast(target, _VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, values, types.int64), generate
