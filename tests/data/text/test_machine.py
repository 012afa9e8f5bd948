"""The single instructions against plain Python."""

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.text import machine
from tests.data.text.last_page import at_the_end

WORDS = st.integers(0, 2**64 - 1)
MASK = 2**64 - 1


@numba.njit
def of_bits(x: np.uint64, y: np.uint64) -> tuple[int, int, np.uint64, np.uint64]:
    return machine.ones(x), machine.trailing_zeros(x), machine.folded_product(x, y), machine.lower_case(x)


@numba.njit
def first_zero(word: np.uint64) -> int:
    found = machine.zero_bytes(word)
    return machine.first_byte(found) if found != 0 else 8


@numba.njit
def loaded(values: np.ndarray, i: int, address: np.uint64) -> tuple[np.uint64, np.uint64]:
    machine.fetch(values, i)
    return machine.load8(values, i), machine.load8_at(address)


@numba.njit
def stored(values: np.ndarray, i: int, word: np.uint64) -> None:
    machine.store8(values, i, word)


@numba.njit
def copied(out: np.ndarray, o: int, values: np.ndarray, i: int, count: int) -> None:
    machine.copy_bytes(out, o, values, i, count)


@given(WORDS, WORDS)
@settings(max_examples=100, deadline=None)
def test_bits_of_numbers(x, y):
    ones, zeros, product, lower = of_bits(np.uint64(x), np.uint64(y))
    assert ones == x.bit_count()
    assert zeros == (x & -x).bit_length() - 1 if x else zeros == 64
    assert int(product) == (x * y & MASK) ^ (x * y >> 64)
    content = x.to_bytes(8, "little")
    assert int(lower).to_bytes(8, "little") == bytes(byte | 0x20 if byte < 0x80 else byte for byte in content)


@given(st.binary(min_size=8, max_size=8) | st.lists(st.sampled_from([0, 1, 128, 255]), min_size=8, max_size=8))
@settings(max_examples=100, deadline=None)
def test_the_first_zero_byte(content):
    assert first_zero(np.uint64(int.from_bytes(bytes(content), "little"))) == (bytes(content) + b"\0").index(0)


@given(st.binary(min_size=8, max_size=40), WORDS, st.data())
@settings(max_examples=100, deadline=None)
def test_eight_bytes_from_and_to_anywhere(content, word, data):
    i = data.draw(st.integers(0, len(content) - 8))
    values = at_the_end(content)
    expected = int.from_bytes(content[i : i + 8], "little")
    assert [int(x) for x in loaded(values, i, np.uint64(values.ctypes.data + i))] == [expected] * 2
    stored(values, i, np.uint64(word))
    assert bytes(values) == content[:i] + word.to_bytes(8, "little") + content[i + 8 :]


@given(st.binary(max_size=40), st.integers(0, 9), st.data())
@settings(max_examples=50, deadline=None)
def test_copies_are_whole_and_no_more(content, o, data):
    i = data.draw(st.integers(0, len(content)))
    count = data.draw(st.integers(0, len(content) - i))
    out = at_the_end(b"\7" * (o + count))
    copied(out, o, at_the_end(content), i, count)
    assert bytes(out) == b"\7" * o + content[i : i + count]
