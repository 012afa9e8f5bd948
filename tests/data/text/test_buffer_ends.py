"""Text that ends where its memory ends is read as any other: nothing looks behind the last byte."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.text.keys import hash_keys
from data.text.model_tokens import next_token
from data.text.words import ngram_hashes
from tests.data.text.last_page import at_the_end

PIECES = st.sampled_from(["a", "Word", " ", "é", "ж" * 9, "中", "กี่", "\u00a0", "x" * 57, "😀"])
TEXTS = st.lists(PIECES, max_size=40).map("".join)


def grams_of(values: np.ndarray, begin: int, n: int) -> list[int]:
    out = np.zeros((len(values) - begin) // 2 + 1, np.uint64)
    _, count = ngram_hashes(values, begin, len(values), n, out)
    return out[:count].tolist()


@given(TEXTS.map(str.encode) | st.binary(max_size=150), st.integers(0, 70), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_ngrams(text, shift, n):
    followed = np.frombuffer(text + b" " * 64, np.uint8)
    assert grams_of(at_the_end(b"y" * shift + text), shift, n) == grams_of(followed[: len(text)], 0, n)


@pytest.mark.parametrize("length", [*range(18), *range(55, 75), 127, 128, 129, 4095, 4096, 4097])
def test_words_of_every_length(length):
    for text in (b"a" * length, b"a " * (length // 2), ("ж" * length).encode(), "中".encode() * length):
        assert grams_of(at_the_end(text), 0, 1) == grams_of(np.frombuffer(text + b" " * 64, np.uint8), 0, 1)


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_tokens_of_models(text):
    found = []
    for values in (at_the_end(text.encode()), np.frombuffer(text.encode() + b" " * 8, np.uint8)):
        tokens, i = [], 0
        while i < len(text.encode()):
            token, _, i = next_token(values, i, len(text.encode()))
            tokens.append(int(token))
        found.append(tokens)
    assert found[0] == found[1]


@given(st.lists(st.text(max_size=20), max_size=5), st.integers(0, 2))
@settings(max_examples=50, deadline=None)
def test_keys(names, skipped):
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(at_the_end(b"".join(encoded)))]
    strings = pa.Array.from_buffers(pa.string(), len(names), buffers)
    assert hash_keys(strings.slice(skipped)).tolist() == hash_keys(pa.array(names[skipped:], pa.string())).tolist()
