"""Causal attention within documents on a CPU for narrow heads: buffers in, buffers out, without the GIL.

It is the algorithm of FlashAttention-2 (Dao, 2023, sections 3.1 and 3.2) for documents of which a head's keys and
values fit into a core's cache: scores of ROWS tokens are made, used and dropped, so that no matrix of tokens by tokens
is held. Products as narrow as those of a head of 16 or 32 are small for a library of matrix products; here they are
spelled out in registers.

Tensors are flat and contiguous, [places, heads, width], with the places of all rows one behind the other; document i
has the places [borders[i], borders[i + 1]). width is a multiple of LANES. Items are numbered document by document, and
in each by the head of its keys: what one writes no other does, so they can be shared out among threads.
"""

import math
from typing import Any

import numba
import numpy as np

from data.text.inner import inner
from data.text.lanes import (
    LANES,
    add,
    exponential,
    highest_of,
    load,
    maximum,
    multiply,
    multiply_add,
    splat,
    store,
    subtract,
    sum_of,
)

ROWS = 8  # of scores at a time; spelled out below

_ZERO, _ONE, _LOWEST = np.float32(0), np.float32(1), np.float32(-1e30)

_njit: Any = numba.njit
_kernel = _njit(nogil=True, cache=True, error_model="numpy")


@inner
def _rounded(number: int) -> int:
    """Up to a multiple of LANES."""
    return (number + LANES - 1) // LANES * LANES


@inner
def _product(
    left: np.ndarray, left_step: int, n: int, right: np.ndarray, right_step: int, m: int, out: np.ndarray, out_step: int
) -> None:
    """out[ROWS, :m] = left[ROWS, :n] x right[:n, :m], each with so many numbers from row to row; m is a multiple of
    LANES."""
    j = 0
    while j + 2 * LANES <= m:
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = splat(_ZERO)
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = splat(_ZERO)
        for i in range(n):
            x, y = load(right, i * right_step + j), load(right, i * right_step + j + LANES)
            a0, b0 = multiply_add(left, i, x, a0), multiply_add(left, i, y, b0)
            a1, b1 = multiply_add(left, left_step + i, x, a1), multiply_add(left, left_step + i, y, b1)
            a2, b2 = multiply_add(left, 2 * left_step + i, x, a2), multiply_add(left, 2 * left_step + i, y, b2)
            a3, b3 = multiply_add(left, 3 * left_step + i, x, a3), multiply_add(left, 3 * left_step + i, y, b3)
            a4, b4 = multiply_add(left, 4 * left_step + i, x, a4), multiply_add(left, 4 * left_step + i, y, b4)
            a5, b5 = multiply_add(left, 5 * left_step + i, x, a5), multiply_add(left, 5 * left_step + i, y, b5)
            a6, b6 = multiply_add(left, 6 * left_step + i, x, a6), multiply_add(left, 6 * left_step + i, y, b6)
            a7, b7 = multiply_add(left, 7 * left_step + i, x, a7), multiply_add(left, 7 * left_step + i, y, b7)
        _store_rows(out, j, out_step, a0, a1, a2, a3, a4, a5, a6, a7)
        _store_rows(out, j + LANES, out_step, b0, b1, b2, b3, b4, b5, b6, b7)
        j += 2 * LANES
    if j < m:
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = splat(_ZERO)
        for i in range(n):
            x = load(right, i * right_step + j)
            a0 = multiply_add(left, i, x, a0)
            a1 = multiply_add(left, left_step + i, x, a1)
            a2 = multiply_add(left, 2 * left_step + i, x, a2)
            a3 = multiply_add(left, 3 * left_step + i, x, a3)
            a4 = multiply_add(left, 4 * left_step + i, x, a4)
            a5 = multiply_add(left, 5 * left_step + i, x, a5)
            a6 = multiply_add(left, 6 * left_step + i, x, a6)
            a7 = multiply_add(left, 7 * left_step + i, x, a7)
        _store_rows(out, j, out_step, a0, a1, a2, a3, a4, a5, a6, a7)


@inner
def _store_rows(
    out: np.ndarray, j: int, stride: int, a0: Any, a1: Any, a2: Any, a3: Any, a4: Any, a5: Any, a6: Any, a7: Any
) -> None:
    store(out, j, a0)
    store(out, stride + j, a1)
    store(out, 2 * stride + j, a2)
    store(out, 3 * stride + j, a3)
    store(out, 4 * stride + j, a4)
    store(out, 5 * stride + j, a5)
    store(out, 6 * stride + j, a6)
    store(out, 7 * stride + j, a7)


@inner
def _add_outer(weights: np.ndarray, rows: np.ndarray, out: np.ndarray, stride: int, width: int, n: int) -> None:
    """out[n, width] += transpose of weights[ROWS, stride][:, :n] x rows[ROWS, width]."""
    for c in range(width // LANES):
        at = c * LANES
        r0, r1, r2, r3 = (
            load(rows, at),
            load(rows, width + at),
            load(rows, 2 * width + at),
            load(rows, 3 * width + at),
        )
        r4, r5, r6, r7 = (
            load(rows, 4 * width + at),
            load(rows, 5 * width + at),
            load(rows, 6 * width + at),
            load(rows, 7 * width + at),
        )
        for j in range(n):
            x, y = load(out, j * width + at), splat(_ZERO)
            x, y = multiply_add(weights, j, r0, x), multiply_add(weights, stride + j, r1, y)
            x, y = multiply_add(weights, 2 * stride + j, r2, x), multiply_add(weights, 3 * stride + j, r3, y)
            x, y = multiply_add(weights, 4 * stride + j, r4, x), multiply_add(weights, 5 * stride + j, r5, y)
            x, y = multiply_add(weights, 6 * stride + j, r6, x), multiply_add(weights, 7 * stride + j, r7, y)
            store(out, j * width + at, add(x, y))


@inner
def _take_rows(tensor: np.ndarray, first: int, step: int, n: int, width: int, rows: np.ndarray) -> None:
    """n rows, `step` apart, to rows[n, width]."""
    for j in range(n):
        for c in range(width // LANES):
            store(rows, j * width + c * LANES, load(tensor, first + j * step + c * LANES))


@inner
def _take_columns(
    tensor: np.ndarray, first: int, step: int, n: int, width: int, columns: np.ndarray, stride: int
) -> None:
    """n rows, `step` apart, transposed to columns[width, stride]; zeros behind them."""
    columns[: width * stride] = 0
    for j in range(n):
        for w in range(width):
            columns[w * stride + j] = tensor[first + j * step + w]


@inner
def _take_block(tensor: np.ndarray, first: int, step: int, m: int, width: int, scale: float, block: np.ndarray) -> None:
    """m rows, `step` apart, times `scale` to block[ROWS, width]; zeros behind them."""
    factor, nothing = splat(np.float32(scale)), splat(_ZERO)
    for a in range(ROWS):
        for c in range(width // LANES):
            at = c * LANES
            found = multiply(load(tensor, first + a * step + at), factor) if a < m else nothing
            store(block, a * width + at, found)


@inner
def _put(block: np.ndarray, m: int, width: int, scale: float, tensor: np.ndarray, first: int, step: int) -> None:
    """m rows times `scale` to places that are `step` apart."""
    factor = splat(np.float32(scale))
    for a in range(m):
        for c in range(width // LANES):
            at = c * LANES
            store(tensor, first + a * step + at, multiply(load(block, a * width + at), factor))


@inner
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
    scores, block = np.empty(ROWS * most, np.float32), np.empty(ROWS * width, np.float32)
    for item in range(begin, end):
        document, head = item // key_heads, item % key_heads
        first, n = borders[document], borders[document + 1] - borders[document]
        stride = _rounded(n)
        place, step = (first * key_heads + head) * width, key_heads * width
        _take_columns(key, place, step, n, width, keys, stride)
        _take_rows(value, place, step, n, width, values)
        for number in range(heads // key_heads):
            mine = head * (heads // key_heads) + number
            for i in range(0, n, ROWS):
                m = min(ROWS, n - i)
                at = ((first + i) * heads + mine) * width
                _take_block(query, at, heads * width, m, width, scale, block)
                seen = _rounded(i + m)
                _product(block, width, width, keys, stride, seen, scores, stride)
                for a in range(m):
                    row = a * stride
                    _hide(scores, row + i + a + 1, row + seen)
                    lanes = splat(_LOWEST)
                    j = row
                    while j < row + seen:
                        lanes = maximum(load(scores, j), lanes)
                        j += LANES
                    highest, total = highest_of(lanes), splat(_ZERO)
                    lanes = splat(highest)
                    j = row
                    while j < row + seen:
                        found = exponential(subtract(load(scores, j), lanes))
                        store(scores, j, found)
                        total = add(total, found)
                        j += LANES
                    denominator = sum_of(total)
                    log_z[(first + i + a) * heads + mine] = highest + np.float32(math.log(denominator))
                    factor = splat(_ONE / denominator)
                    j = row
                    while j < row + seen:
                        store(scores, j, multiply(load(scores, j), factor))
                        j += LANES
                _product(scores, stride, i + m, values, width, width, block, width)
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
    value_columns = np.empty(width * most, np.float32)
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
        _take_columns(key, place, step, n, width, key_columns, stride)
        _take_rows(key, place, step, n, width, keys)
        _take_columns(value, place, step, n, width, value_columns, stride)
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
                _product(block, width, width, key_columns, stride, seen, weights, stride)
                _product(by_out, width, width, value_columns, stride, seen, by_score, stride)
                for a in range(m):
                    row, total = a * stride, splat(_ZERO)
                    _hide(weights, row + i + a + 1, row + seen)
                    for c in range(width // LANES):
                        of = load(out, at + a * heads * width + c * LANES)
                        total = add(total, multiply(load(by_out, a * width + c * LANES), of))
                    mean, denominator = splat(sum_of(total)), splat(log_z[(first + i + a) * heads + mine])
                    j = row
                    while j < row + seen:
                        weight = exponential(subtract(load(weights, j), denominator))
                        store(weights, j, weight)
                        store(by_score, j, multiply(weight, subtract(load(by_score, j), mean)))
                        j += LANES
                _product(by_score, stride, i + m, keys, width, width, found, width)
                _put(found, m, width, scale, of_query, at, heads * width)
                _add_outer(by_score, block, by_key, stride, width, i + m)
                _add_outer(weights, by_out, by_value, stride, width, i + m)
        _put(by_key, n, width, _ONE, of_key, place, step)
        _put(by_value, n, width, _ONE, of_value, place, step)
