"""LANES numbers of float32 in a register, and what can be done with them at once: for loops that LLVM does not find by
itself how to spread over registers. Where registers are shorter, it takes several for each.

Places in arrays are not checked: one outside is our mistake.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.datamodel.models import PrimitiveModel

from data.text.machine import address_of, intrinsic, unaligned

LANES = 16

_LEAST_POWER = -80.0
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_VECTOR, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
_FMA = ir.FunctionType(_VECTOR, [_VECTOR] * 3)


class Lanes(types.Type):
    """What kernels call LANES numbers in a register."""


_LANES = Lanes(name="Lanes")


@extending.register_model(Lanes)
class _Model(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _constant(value: float) -> Any:
    return ir.Constant(_VECTOR, [ir.Constant(_FLOAT, float(np.float32(value)))] * LANES)


def _spread(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, _INT(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(_INTS, [0] * LANES))


def _fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    function = cgutils.get_or_insert_function(builder.module, _FMA, f"llvm.fma.v{LANES}f32")
    return builder.call(function, [x, y, z])


def _higher(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", x, y), y, x)


def _folded(builder: Any, lanes: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """One number of all lanes, half by half."""
    size = LANES
    while size > 1:
        size //= 2
        nothing, part = ir.Constant(lanes.type, ir.Undefined), ir.VectorType(_INT, size)
        low, high = (ir.Constant(part, list(range(begin, begin + size))) for begin in (0, size))
        lanes = combine(builder.shuffle_vector(lanes, nothing, low), builder.shuffle_vector(lanes, nothing, high))
    return builder.extract_element(lanes, _INT(0))


@intrinsic
def load(typing_context: Any, values: Any, place: Any) -> Any:
    """values[place : place + LANES] of a float32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return unaligned(builder, address_of(context, builder, signature.args[0], *arguments), _VECTOR)

    return _LANES(values, types.int64), generate


@intrinsic
def store(typing_context: Any, values: Any, place: Any, lanes: Any) -> Any:
    """values[place : place + LANES] = lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = address_of(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(address, _VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(values, types.int64, lanes), generate


@intrinsic
def splat(typing_context: Any, number: Any) -> Any:
    """A float32 in each of the lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, arguments[0])

    return _LANES(types.float32), generate


@intrinsic
def multiply_add(typing_context: Any, values: Any, place: Any, y: Any, z: Any) -> Any:
    """values[place] x y + z, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, y, z = arguments
        number = unaligned(builder, address_of(context, builder, signature.args[0], array, at), _FLOAT)
        return _fused(builder, _spread(builder, number), y, z)

    return _LANES(values, types.int64, y, z), generate


def _of_two(combine: Callable[..., Any], meaning: str) -> Any:
    """What makes lanes of the lanes x and y; combine: (builder, x, y)."""

    def between(typing_context: Any, x: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return combine(builder, *arguments)

        return _LANES(x, y), generate

    between.__doc__ = meaning
    return intrinsic(between)


add = _of_two(lambda builder, x, y: builder.fadd(x, y), "x + y")
subtract = _of_two(lambda builder, x, y: builder.fsub(x, y), "x - y")
multiply = _of_two(lambda builder, x, y: builder.fmul(x, y), "x times y")
maximum = _of_two(_higher, "The higher one of each; x where either is NaN.")


def _of_all(combine: Callable[..., Any], meaning: str) -> Any:
    """What makes one float32 of lanes; combine: (builder, x, y)."""

    def within(typing_context: Any, lanes: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _folded(builder, arguments[0], lambda x, y: combine(builder, x, y))

        return types.float32(lanes), generate

    within.__doc__ = meaning
    return intrinsic(within)


sum_of = _of_all(lambda builder, x, y: builder.fadd(x, y), "The sum of the lanes.")
highest_of = _of_all(_higher, "The highest of the lanes, none of them NaN.")


@intrinsic
def exponential(typing_context: Any, lanes: Any) -> Any:
    """e to the power of numbers that are not above 88, to 2e-7 of it: 2**n x a polynomial of what n leaves, whose
    coefficients are those of the Cephes library's expf (Moshier, 1992). What is below _LEAST_POWER gives 0, as
    arithmetic with float32's smallest numbers, which have fewer bits, is slow on many processors; NaN gives NaN.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (x,) = arguments
        vanishes = builder.fcmp_ordered("<", x, _constant(_LEAST_POWER))
        rounder = _constant(1.5 * 2**23)  # added, it leaves a whole number in the lowest bits
        power = _fused(builder, x, _constant(math.log2(math.e)), rounder)
        whole = builder.fsub(power, rounder)
        rest = _fused(builder, whole, _constant(-0.693359375), x)
        rest = _fused(builder, whole, _constant(2.12194440e-4), rest)
        found = _constant(1.9875691500e-4)
        for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            found = _fused(builder, found, rest, _constant(coefficient))
        found = _fused(builder, builder.fmul(found, rest), rest, builder.fadd(rest, _constant(1.0)))
        biased = builder.add(builder.bitcast(power, _INTS), ir.Constant(_INTS, [127] * LANES))
        scale = builder.shl(biased, ir.Constant(_INTS, [23] * LANES))
        return builder.select(vanishes, _constant(0.0), builder.fmul(found, builder.bitcast(scale, _VECTOR)))

    return _LANES(lanes), generate
