"""What is done with many numbers at once comes to what is done with one after the other."""

import numba
import numpy as np
import pytest

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


@numba.njit
def combined(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> tuple[float, float]:
    """out: float32[6, LANES], one row for each way."""
    a, b = load(x, 1), load(y, 0)
    store(out, 0, add(a, b))
    store(out, LANES, subtract(a, b))
    store(out, 2 * LANES, multiply(a, b))
    store(out, 3 * LANES, maximum(a, b))
    store(out, 4 * LANES, multiply_add(x, 0, a, b))
    store(out, 5 * LANES, splat(np.float32(7)))
    return sum_of(a), highest_of(a)


@numba.njit
def powers(x: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(x) // LANES):
        store(out, i * LANES, exponential(load(x, i * LANES)))


def test_lanes_are_added_subtracted_multiplied_compared_and_folded() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=LANES + 1).astype(np.float32), generator.normal(size=LANES).astype(np.float32)
    out = np.empty(6 * LANES, np.float32)
    total, highest = combined(x, y, out)
    a = x[1:]
    expected = np.concatenate([a + y, a - y, a * y, np.maximum(a, y), x[0] * a + y, np.full(LANES, 7)])
    assert np.allclose(out, expected, rtol=1e-6, atol=1e-7)
    assert total == pytest.approx(a.sum(), rel=1e-5) and highest == a.max()


def test_powers_are_right_to_two_parts_in_ten_million_and_small_ones_are_zero() -> None:
    x = np.concatenate([np.linspace(-80, 88, 1 << 16), [0.0, -0.0, -1e-30, 1e-30] * 4]).astype(np.float32)
    out = np.empty_like(x)
    powers(x, out)
    assert np.allclose(out, np.exp(x.astype(np.float64)), rtol=2e-7, atol=0)
    edges = np.array([-80.01, -100, -1e30, -np.inf] * 3 + [np.nan] * 4, np.float32)
    found = np.empty_like(edges)
    powers(edges, found)
    assert (found[:12] == 0).all() and np.isnan(found[12:]).all()
