"""Sums of rows against numpy."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.language.matrix_rows import BLOCK, add


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
