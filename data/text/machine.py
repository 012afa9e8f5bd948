"""What numba has no words for: bits and bytes of flat arrays in single instructions. Nothing is checked: a place
outside an array is our mistake."""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

BLOCK = 16  # elements that are added at a time
Row = int | np.int64


def _typed_by_numba(build: Any) -> Any:
    """An intrinsic, whose first argument is not the caller's: of no type that mypy could check."""
    return intrinsic(build)


@_typed_by_numba
def ones(typing_context, bits):
    """Number of bits that are set in a uint64."""

    def build(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), build


@_typed_by_numba
def load(typing_context, values, place):
    """The eight bytes of a uint8 array from `place` on as a little-endian uint64."""

    def build(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        word = ir.IntType(64)
        pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), word.as_pointer())
        loaded = builder.load(pointer)
        loaded.align = 1
        return loaded

    return types.uint64(values, types.int64), build


@_typed_by_numba
def fetch(typing_context, array, place):
    """Asks the memory for an element of a flat array that will be read soon."""

    def build(context, builder, signature, arguments):
        number = ir.IntType(32)
        data = context.make_array(array)(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(prefetch, [pointer, number(0), number(3), number(1)])  # to read, into all caches, data
        return context.get_dummy_value()

    return types.void(array, types.int64), build


@_typed_by_numba
def add_block(typing_context, target, target_place, source, source_place):
    """Adds BLOCK elements of one flat float32 array to those of another."""

    def build(context, builder, signature, arguments):
        block = ir.VectorType(ir.FloatType(), BLOCK).as_pointer()
        pointers = []
        for kind, array, place in ((target, *arguments[:2]), (source, *arguments[2:])):
            data = context.make_array(kind)(context, builder, array).data
            pointers.append(builder.bitcast(builder.gep(data, [place]), block))
        loaded = [builder.load(pointer, align=4) for pointer in pointers]
        builder.store(builder.fadd(*loaded), pointers[0], align=4)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64), build


@numba.njit(nogil=True, cache=True)
def add(target: np.ndarray, target_row: Row, source: np.ndarray, source_row: Row, dimension: int) -> None:
    """Adds a row of a flat float32 matrix to a row of another one."""
    for block in range(dimension // BLOCK):
        add_block(target, target_row * dimension + block * BLOCK, source, source_row * dimension + block * BLOCK)
