"""The single instructions against numpy."""

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.text.machine import BLOCK, add, fetch, load, ones


@numba.njit
def bits_of(value: np.uint64) -> int:
    return ones(value)


@numba.njit
def fetched_and_loaded(values: np.ndarray, place: int) -> np.uint64:
    fetch(values, place)
    return load(values, place)


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_ones(value):
    assert bits_of(np.uint64(value)) == value.bit_count()


@given(st.binary(min_size=8, max_size=40), st.data())
@settings(max_examples=100, deadline=None)
def test_eight_bytes_from_anywhere(content, data):
    place = data.draw(st.integers(0, len(content) - 8))
    found = fetched_and_loaded(np.frombuffer(content, np.uint8), place)
    assert int(found) == int.from_bytes(content[place : place + 8], "little")


@given(st.integers(1, 3), st.integers(0, 4), st.integers(0, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_rows_are_added_to_rows_and_nothing_beside_them(blocks, target_row, source_row, seed):
    drawn = np.random.default_rng(seed)
    target, source = (drawn.normal(size=(5, blocks * BLOCK)).astype(np.float32) for _ in range(2))
    expected = target.copy()
    expected[target_row] += source[source_row]
    flat = target.reshape(-1)
    add(flat, target_row, source.reshape(-1), source_row, blocks * BLOCK)
    assert (flat.reshape(target.shape) == expected).all()
