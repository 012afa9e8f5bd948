"""A sample of texts: the same whatever order they come in, in their order, and all where all fit."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from data.text.text_sample import sample, text_hashes


@given(
    st.lists(st.lists(st.text(max_size=30), max_size=6), max_size=8),
    st.integers(0, 200),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_a_sample_does_not_depend_on_the_order_and_is_all_where_all_fits(batches, most_bytes, drawn) -> None:
    def taken(parts: list[list[str]]) -> list[str]:
        return sample((pa.array(part, pa.large_string()) for part in parts), most_bytes).to_pylist()

    texts = sum(batches, [])
    found = taken(batches)
    size = sum(len(text.encode()) for text in texts)
    assert sum(len(text.encode()) for text in found) <= max(most_bytes, 0)
    if size <= most_bytes:
        assert found == texts
    places = iter(texts)
    assert all(text in places for text in found), "in their order"
    shuffled = batches.copy()
    drawn.shuffle(shuffled)
    assert sorted(taken(shuffled)) == sorted(found)


def test_a_sample_is_spread_over_the_files() -> None:
    parts = [pa.array([f"{file} {i} " + "x" * 90 for i in range(500)], pa.large_string()) for file in range(4)]
    found = sample(iter(parts), 50_000)
    counts = np.bincount([int(text.split()[0]) for text in found.to_pylist()], minlength=4)
    assert 45_000 < sum(len(text) for text in found.to_pylist()) <= 50_000 and (counts > 70).all()


def test_hashes_are_of_the_text_alone():
    texts = pa.array(["a", "b", "a", "", "é"], pa.large_string())
    hashes = text_hashes(texts)
    assert hashes[0] == hashes[2] and len(set(hashes.tolist())) == 4
    assert (text_hashes(texts.slice(2)) == hashes[2:]).all()
