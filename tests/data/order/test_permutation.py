"""A user relies on: a permutation has each element once, whatever its size, and looks like one drawn by lot."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.order.order_kernels import ROUNDS, bits_of
from data.order.permutation import derive_key, permute

U64 = 2**64 - 1


def mixed(value: int) -> int:
    """SplitMix64's finalizer (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014)."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & U64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & U64
    return value ^ (value >> 31)


def reference(place: int, size: int, key: int) -> int:
    """The permutation in Python's own numbers."""
    bits = max(6, (size - 1).bit_length()) if size > 1 else 0
    low = bits // 2
    value = place
    while True:
        left, right, round_key = value >> low, value & ((1 << low) - 1), key
        for number in range(ROUNDS):
            round_key = mixed(round_key + 0x9E3779B97F4A7C15 & U64)
            if number % 2 == 0:
                left ^= mixed(right ^ round_key) & ((1 << (bits - low)) - 1)
            else:
                right ^= mixed(left ^ round_key) & ((1 << low) - 1)
        value = left << low | right
        if value < size:
            return value


@settings(max_examples=60)
@given(size=st.integers(1, 3000), key=st.integers(0, U64))
def test_it_has_each_element_once(size: int, key: int) -> None:
    found = permute(np.arange(size), size, key)
    assert np.array_equal(np.sort(found), np.arange(size))
    assert found[size // 2] == reference(size // 2, size, key)


@settings(max_examples=60)
@given(size=st.integers(1, 2**62), key=st.integers(0, U64), data=st.data())
def test_it_is_the_same_in_pythons_own_numbers(size: int, key: int, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    assert permute(np.array(places), size, key).tolist() == [reference(place, size, key) for place in places]


def test_a_key_for_each_place() -> None:
    places, keys = np.array([3, 3, 0]), np.array([1, 2, U64], dtype=np.uint64)
    found = permute(places, 1000, keys).tolist()
    assert found == [reference(int(place), 1000, int(key)) for place, key in zip(places, keys, strict=True)]
    assert found[0] != found[1]


def test_bits() -> None:
    assert [bits_of(size) for size in (1, 2, 64, 65, 2**31, 2**31 + 1, 2**62)] == [0, 6, 6, 7, 31, 32, 62]


def test_a_trillion_needs_no_memory() -> None:
    size = 10**12 + 39
    found = permute(np.array([0, 1, 2**31, 2**32 + 1, size - 1]), size, 1)
    assert found.dtype == np.int64 and len(set(found.tolist())) == 5 and found.min() >= 0 and found.max() < size


@pytest.mark.parametrize("size", [3, 6, 20])
def test_it_spreads_evenly(size: int) -> None:
    """Over keys each place holds each value about equally often, and two neighbours each difference: chi-square below
    the 99.9 % point, by the normal approximation.
    """
    num_keys = 10_000
    found = permute(
        np.tile(np.arange(size), num_keys), size, np.repeat(np.arange(num_keys, dtype=np.uint64) * 7919, size)
    )
    rows = found.reshape(num_keys, size)
    places = np.stack([np.bincount(column, minlength=size) for column in rows.T])
    steps = np.bincount((rows[:, 1] - rows[:, 0]) % size, minlength=size)[1:]
    for counts, freedom in ((places, (size - 1) ** 2), (steps, size - 2)):
        expected = counts.mean()
        assert ((counts - expected) ** 2 / expected).sum() < freedom + 3.3 * (2 * freedom) ** 0.5 + 4


def test_neighbours_do_not_stay_near() -> None:
    found = permute(np.arange(10_000), 10_000, 3)
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.05


def test_keys_are_those_of_the_parts() -> None:
    assert derive_key("pool", 0, "prose") == derive_key("pool", 0, "prose")
    assert len({derive_key("a", 1), derive_key("a", "1"), derive_key("a1"), derive_key("a", 2)}) == 4
