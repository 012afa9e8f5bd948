"""A name has one key, whatever column it stands in, and different names have different ones."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from data.text.keys import hash_keys

MASK = (1 << 64) - 1


def plain_key(name: str) -> int:
    """FNV-1a and the finaliser of splitmix64, as their definitions have them."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ h >> 27) * 0x94D049BB133111EB & MASK
    return h ^ h >> 31


@given(st.lists(st.text(max_size=12), max_size=8), st.integers(0, 8), st.integers(0, 8))
@settings(max_examples=80, deadline=None)
def test_keys_are_those_of_the_definition_in_slices_too(names, start, length):
    column = pa.array(names, pa.string()).slice(start, length)
    assert hash_keys(column).tolist() == [plain_key(name) for name in names[start : start + length]]


def test_many_names_have_as_many_keys():
    names = pa.array([f"corpus/part-{i % 7}.jsonl#{i}" for i in range(200_000)])
    assert len(np.unique(hash_keys(names))) == 200_000
