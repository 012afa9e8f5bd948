"""Causal attention within documents on a CPU for narrow heads: buffers in, buffers out, without the GIL.

It is the algorithm of FlashAttention-2 (Dao, 2023, sections 3.1 and 3.2) for documents of which a head's keys and
values fit into a core's cache: scores of ROWS tokens are made, used and dropped, so that no matrix of tokens by tokens
is held. torch's own kernel multiplies matrices by a library, which for products as narrow as a head of 16 or 32 spends
most of its time outside of the multiplications; here they are spelled out in LANES numbers at a time.

Tensors are flat and contiguous, [places, heads, width], with the places of all rows one behind the other; document i
has the places [borders[i], borders[i + 1]). width is a multiple of LANES. Items are numbered document by document, and
in each by the head of its keys: what one writes no other does, so they can be shared out among threads.
"""

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.datamodel.models import PrimitiveModel

from stages.pretrain.model.narrow_heads import LANES

ROWS = 8  # of scores at a time; spelled out below

_ZERO, _ONE, _LOWEST = np.float32(0), np.float32(1), np.float32(-1e30)
_LEAST_POWER = -80.0

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_VECTOR, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
_FMA = ir.FunctionType(_VECTOR, [_VECTOR] * 3)


class _Lanes(types.Type):
    """LANES numbers of float32 in a register."""


_LANES_TYPE = _Lanes(name="Lanes")


@extending.register_model(_Lanes)
class _LanesModel(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


_intrinsic: Any = extending.intrinsic  # untyped: a kernel calls it without the typing context


def _constant(value: float) -> Any:
    return ir.Constant(_VECTOR, [ir.Constant(_FLOAT, float(np.float32(value)))] * LANES)


def _address(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [place])


def _spread(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, _INT(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(_INTS, [0] * LANES))


def _fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    function = cgutils.get_or_insert_function(builder.module, _FMA, f"llvm.fma.v{LANES}f32")
    return builder.call(function, [x, y, z])


@_intrinsic
def _load(typing_context: Any, values: Any, place: Any) -> Any:
    """values[place : place + LANES]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, _VECTOR.as_pointer()), align=4)

    return _LANES_TYPE(values, types.int64), generate


@_intrinsic
def _store(typing_context: Any, values: Any, place: Any, lanes: Any) -> Any:
    """values[place : place + LANES] = lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(address, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(values, types.int64, lanes), generate


@_intrinsic
def _splat(typing_context: Any, number: Any) -> Any:
    """A float32 in each of the lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, arguments[0])

    return _LANES_TYPE(types.float32), generate


@_intrinsic
def _add(typing_context: Any, x: Any, y: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return _LANES_TYPE(x, y), generate


@_intrinsic
def _subtract(typing_context: Any, x: Any, y: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fsub(*arguments)

    return _LANES_TYPE(x, y), generate


@_intrinsic
def _multiply(typing_context: Any, x: Any, y: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(*arguments)

    return _LANES_TYPE(x, y), generate


@_intrinsic
def _multiply_add(typing_context: Any, values: Any, place: Any, y: Any, z: Any) -> Any:
    """values[place] x y + z."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, y, z = arguments
        number = builder.load(_address(context, builder, signature.args[0], array, at), align=4)
        return _fused(builder, _spread(builder, number), y, z)

    return _LANES_TYPE(values, types.int64, y, z), generate


def _higher(builder: Any, x: Any, y: Any) -> Any:
    """NaN if the first one is."""
    return builder.select(builder.fcmp_ordered("<", x, y), y, x)


@_intrinsic
def _maximum(typing_context: Any, x: Any, y: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _higher(builder, *arguments)

    return _LANES_TYPE(x, y), generate


def _folded(builder: Any, lanes: Any, combine: Any) -> Any:
    """One number of all lanes, half by half."""
    size = LANES
    while size > 1:
        size //= 2
        nothing = ir.Constant(lanes.type, ir.Undefined)
        halves = (
            builder.shuffle_vector(
                lanes, nothing, ir.Constant(ir.VectorType(_INT, size), list(range(begin, begin + size)))
            )
            for begin in (0, size)
        )
        lanes = combine(*halves)
    return builder.extract_element(lanes, _INT(0))


@_intrinsic
def _sum(typing_context: Any, lanes: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _folded(builder, arguments[0], builder.fadd)

    return types.float32(lanes), generate


@_intrinsic
def _highest(typing_context: Any, lanes: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _folded(builder, arguments[0], lambda x, y: _higher(builder, x, y))

    return types.float32(lanes), generate


@_intrinsic
def _exponential(typing_context: Any, lanes: Any) -> Any:
    """e to the power of numbers that are not above 88, within 2e-7 of it: 2**n x a polynomial of what n leaves, whose
    coefficients are those of the Cephes library's expf (Moshier, 1992). What is below _LEAST_POWER gives 0, as the
    numbers next to 0 that float32 holds with fewer bits take a processor a hundred times as long; NaN gives NaN.
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

    return _LANES_TYPE(lanes), generate


_njit: Any = numba.njit  # whose types lack two of these arguments
_kernel = _njit(nogil=True, cache=True, error_model="numpy")
_part = _njit(nogil=True, cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@_part
def _rounded(number: int) -> int:
    """Up to a multiple of LANES."""
    return (number + LANES - 1) // LANES * LANES


@_part
def _by_columns(rows: np.ndarray, columns: np.ndarray, out: np.ndarray, stride: int, width: int, n: int) -> None:
    """out[ROWS, stride][:, :n] = rows[ROWS, width] x columns[width, stride][:, :n]; n is a multiple of LANES."""
    j = 0
    while j + 2 * LANES <= n:
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = _splat(_ZERO)
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = _splat(_ZERO)
        for w in range(width):
            x, y = _load(columns, w * stride + j), _load(columns, w * stride + j + LANES)
            a0, b0 = _multiply_add(rows, w, x, a0), _multiply_add(rows, w, y, b0)
            a1, b1 = _multiply_add(rows, width + w, x, a1), _multiply_add(rows, width + w, y, b1)
            a2, b2 = _multiply_add(rows, 2 * width + w, x, a2), _multiply_add(rows, 2 * width + w, y, b2)
            a3, b3 = _multiply_add(rows, 3 * width + w, x, a3), _multiply_add(rows, 3 * width + w, y, b3)
            a4, b4 = _multiply_add(rows, 4 * width + w, x, a4), _multiply_add(rows, 4 * width + w, y, b4)
            a5, b5 = _multiply_add(rows, 5 * width + w, x, a5), _multiply_add(rows, 5 * width + w, y, b5)
            a6, b6 = _multiply_add(rows, 6 * width + w, x, a6), _multiply_add(rows, 6 * width + w, y, b6)
            a7, b7 = _multiply_add(rows, 7 * width + w, x, a7), _multiply_add(rows, 7 * width + w, y, b7)
        _store_rows(out, j, stride, a0, a1, a2, a3, a4, a5, a6, a7)
        _store_rows(out, j + LANES, stride, b0, b1, b2, b3, b4, b5, b6, b7)
        j += 2 * LANES
    if j < n:
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = _splat(_ZERO)
        for w in range(width):
            x = _load(columns, w * stride + j)
            a0 = _multiply_add(rows, w, x, a0)
            a1 = _multiply_add(rows, width + w, x, a1)
            a2 = _multiply_add(rows, 2 * width + w, x, a2)
            a3 = _multiply_add(rows, 3 * width + w, x, a3)
            a4 = _multiply_add(rows, 4 * width + w, x, a4)
            a5 = _multiply_add(rows, 5 * width + w, x, a5)
            a6 = _multiply_add(rows, 6 * width + w, x, a6)
            a7 = _multiply_add(rows, 7 * width + w, x, a7)
        _store_rows(out, j, stride, a0, a1, a2, a3, a4, a5, a6, a7)


@_part
def _store_rows(
    out: np.ndarray, j: int, stride: int, a0: Any, a1: Any, a2: Any, a3: Any, a4: Any, a5: Any, a6: Any, a7: Any
) -> None:
    _store(out, j, a0)
    _store(out, stride + j, a1)
    _store(out, 2 * stride + j, a2)
    _store(out, 3 * stride + j, a3)
    _store(out, 4 * stride + j, a4)
    _store(out, 5 * stride + j, a5)
    _store(out, 6 * stride + j, a6)
    _store(out, 7 * stride + j, a7)


@_part
def _by_rows(weights: np.ndarray, rows: np.ndarray, out: np.ndarray, stride: int, width: int, n: int) -> None:
    """out[ROWS, width] = weights[ROWS, stride][:, :n] x rows[n, width]."""
    for c in range(width // LANES):
        at = c * LANES
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = _splat(_ZERO)
        for j in range(n):
            x = _load(rows, j * width + at)
            a0 = _multiply_add(weights, j, x, a0)
            a1 = _multiply_add(weights, stride + j, x, a1)
            a2 = _multiply_add(weights, 2 * stride + j, x, a2)
            a3 = _multiply_add(weights, 3 * stride + j, x, a3)
            a4 = _multiply_add(weights, 4 * stride + j, x, a4)
            a5 = _multiply_add(weights, 5 * stride + j, x, a5)
            a6 = _multiply_add(weights, 6 * stride + j, x, a6)
            a7 = _multiply_add(weights, 7 * stride + j, x, a7)
        _store_rows(out, at, width, a0, a1, a2, a3, a4, a5, a6, a7)


@_part
def _add_outer(weights: np.ndarray, rows: np.ndarray, out: np.ndarray, stride: int, width: int, n: int) -> None:
    """out[n, width] += transpose of weights[ROWS, stride][:, :n] x rows[ROWS, width]."""
    for c in range(width // LANES):
        at = c * LANES
        r0, r1, r2, r3 = (
            _load(rows, at),
            _load(rows, width + at),
            _load(rows, 2 * width + at),
            _load(rows, 3 * width + at),
        )
        r4, r5, r6, r7 = (
            _load(rows, 4 * width + at),
            _load(rows, 5 * width + at),
            _load(rows, 6 * width + at),
            _load(rows, 7 * width + at),
        )
        for j in range(n):
            x, y = _load(out, j * width + at), _splat(_ZERO)
            x, y = _multiply_add(weights, j, r0, x), _multiply_add(weights, stride + j, r1, y)
            x, y = _multiply_add(weights, 2 * stride + j, r2, x), _multiply_add(weights, 3 * stride + j, r3, y)
            x, y = _multiply_add(weights, 4 * stride + j, r4, x), _multiply_add(weights, 5 * stride + j, r5, y)
            x, y = _multiply_add(weights, 6 * stride + j, r6, x), _multiply_add(weights, 7 * stride + j, r7, y)
            _store(out, j * width + at, _add(x, y))


@_part
def _take(
    tensor: np.ndarray, first: int, step: int, n: int, width: int, rows: np.ndarray, columns: np.ndarray, stride: int
) -> None:
    """n rows, `step` apart, to rows[n, width] and, transposed, to columns[width, stride]."""
    for j in range(n):
        at = first + j * step
        for c in range(width // LANES):
            _store(rows, j * width + c * LANES, _load(tensor, at + c * LANES))
        for w in range(width):
            columns[w * stride + j] = tensor[at + w]


@_part
def _take_block(tensor: np.ndarray, first: int, step: int, m: int, width: int, scale: float, block: np.ndarray) -> None:
    """m rows, `step` apart, times `scale` to block[ROWS, width]; zeros behind them."""
    factor, nothing = _splat(np.float32(scale)), _splat(_ZERO)
    for a in range(ROWS):
        for c in range(width // LANES):
            at = c * LANES
            found = _multiply(_load(tensor, first + a * step + at), factor) if a < m else nothing
            _store(block, a * width + at, found)


@_part
def _put(block: np.ndarray, m: int, width: int, scale: float, tensor: np.ndarray, first: int, step: int) -> None:
    """m rows times `scale` to places that are `step` apart."""
    factor = _splat(np.float32(scale))
    for a in range(m):
        for c in range(width // LANES):
            at = c * LANES
            _store(tensor, first + a * step + at, _multiply(_load(block, a * width + at), factor))


@_part
def _hide(scores: np.ndarray, first: int, last: int) -> None:
    """Scores of tokens that come later."""
    for j in range(first, last):
        scores[j] = _LOWEST


@_kernel
def attend(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    borders: np.ndarray,
    heads: int,
    key_heads: int,
    width: int,
    scale: float,
    begin: int,
    end: int,
    out: np.ndarray,
    log_z: np.ndarray,
) -> None:
    """Items `begin` to `end` of out, like query, and log_z, float32[places, heads]: the logarithm of each softmax's
    denominator. query: float32, of `heads`; key, value: of `key_heads`, a divisor of that."""
    longest = 0
    for item in range(begin, end):
        document = item // key_heads
        longest = max(longest, borders[document + 1] - borders[document])
    most = _rounded(longest)
    keys, values = np.empty(width * most, np.float32), np.empty(most * width, np.float32)
    spare_rows, spare_columns = np.empty(most * width, np.float32), np.empty(width * most, np.float32)
    scores, block = np.empty(ROWS * most, np.float32), np.empty(ROWS * width, np.float32)
    for item in range(begin, end):
        document, head = item // key_heads, item % key_heads
        first, n = borders[document], borders[document + 1] - borders[document]
        stride = _rounded(n)
        place, step = (first * key_heads + head) * width, key_heads * width
        keys[: width * stride] = 0  # those behind the last one too
        _take(key, place, step, n, width, spare_rows, keys, stride)
        _take(value, place, step, n, width, values, spare_columns, stride)
        for number in range(heads // key_heads):
            mine = head * (heads // key_heads) + number
            for i in range(0, n, ROWS):
                m = min(ROWS, n - i)
                at = ((first + i) * heads + mine) * width
                _take_block(query, at, heads * width, m, width, scale, block)
                seen = _rounded(i + m)
                _by_columns(block, keys, scores, stride, width, seen)
                for a in range(m):
                    row = a * stride
                    _hide(scores, row + i + a + 1, row + seen)
                    lanes = _splat(_LOWEST)
                    j = row
                    while j < row + seen:
                        lanes = _maximum(_load(scores, j), lanes)
                        j += LANES
                    highest, total = _highest(lanes), _splat(_ZERO)
                    lanes = _splat(highest)
                    j = row
                    while j < row + seen:
                        found = _exponential(_subtract(_load(scores, j), lanes))
                        _store(scores, j, found)
                        total = _add(total, found)
                        j += LANES
                    denominator = _sum(total)
                    log_z[(first + i + a) * heads + mine] = highest + np.float32(math.log(denominator))
                    factor = _splat(_ONE / denominator)
                    j = row
                    while j < row + seen:
                        _store(scores, j, _multiply(_load(scores, j), factor))
                        j += LANES
                _by_rows(scores, values, block, stride, width, i + m)
                _put(block, m, width, _ONE, out, at, heads * width)


@_kernel
def attend_backward(
    gradient: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    out: np.ndarray,
    log_z: np.ndarray,
    borders: np.ndarray,
    heads: int,
    key_heads: int,
    width: int,
    scale: float,
    begin: int,
    end: int,
    of_query: np.ndarray,
    of_key: np.ndarray,
    of_value: np.ndarray,
) -> None:
    """Items `begin` to `end` of the gradients of query, key and value, of `gradient`, that of out."""
    longest = 0
    for item in range(begin, end):
        document = item // key_heads
        longest = max(longest, borders[document + 1] - borders[document])
    most = _rounded(longest)
    key_columns, keys = np.empty(width * most, np.float32), np.empty(most * width, np.float32)
    value_columns, spare_rows = np.empty(width * most, np.float32), np.empty(most * width, np.float32)
    by_key, by_value = np.empty(most * width, np.float32), np.empty(most * width, np.float32)
    weights, by_score = np.empty(ROWS * most, np.float32), np.empty(ROWS * most, np.float32)
    block, by_out, found = (
        np.empty(ROWS * width, np.float32),
        np.empty(ROWS * width, np.float32),
        np.empty(ROWS * width, np.float32),
    )
    for item in range(begin, end):
        document, head = item // key_heads, item % key_heads
        first, n = borders[document], borders[document + 1] - borders[document]
        stride = _rounded(n)
        place, step = (first * key_heads + head) * width, key_heads * width
        key_columns[: width * stride] = 0
        value_columns[: width * stride] = 0
        _take(key, place, step, n, width, keys, key_columns, stride)
        _take(value, place, step, n, width, spare_rows, value_columns, stride)
        by_key[: n * width] = 0
        by_value[: n * width] = 0
        for number in range(heads // key_heads):
            mine = head * (heads // key_heads) + number
            for i in range(0, n, ROWS):
                m = min(ROWS, n - i)
                at = ((first + i) * heads + mine) * width
                _take_block(query, at, heads * width, m, width, scale, block)
                _take_block(gradient, at, heads * width, m, width, _ONE, by_out)
                seen = _rounded(i + m)
                _by_columns(block, key_columns, weights, stride, width, seen)
                _by_columns(by_out, value_columns, by_score, stride, width, seen)
                for a in range(m):
                    row, total = a * stride, _splat(_ZERO)
                    _hide(weights, row + i + a + 1, row + seen)
                    for c in range(width // LANES):
                        of = _load(out, at + a * heads * width + c * LANES)
                        total = _add(total, _multiply(_load(by_out, a * width + c * LANES), of))
                    mean, denominator = _splat(_sum(total)), _splat(log_z[(first + i + a) * heads + mine])
                    j = row
                    while j < row + seen:
                        weight = _exponential(_subtract(_load(weights, j), denominator))
                        _store(weights, j, weight)
                        _store(by_score, j, _multiply(weight, _subtract(_load(by_score, j), mean)))
                        j += LANES
                _by_rows(by_score, keys, found, stride, width, i + m)
                _put(found, m, width, scale, of_query, at, heads * width)
                _add_outer(by_score, block, by_key, stride, width, i + m)
                _add_outer(weights, by_out, by_value, stride, width, i + m)
        _put(by_key, n, width, _ONE, of_key, place, step)
        _put(by_value, n, width, _ONE, of_value, place, step)
