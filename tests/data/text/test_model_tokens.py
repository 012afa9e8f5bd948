"""The tokens of trained models against a plain reading of their definition."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.quality.ngram_kernels import all_hashes
from data.text.model_tokens import next_token

ALPHABET = st.sampled_from("aB9_ .,\n\t\x7f\x85\u00a0«éßяЖ한글中文のไทயဗခ\u10c0ก។\u2019\u3000ｱ，😀𠀀\ue000\u1680\u17ff")
TEXTS = st.one_of(st.text(ALPHABET, max_size=60), st.text(max_size=40))


def kind(character: str) -> str:
    code = ord(character)
    if code < 33 or 127 <= code <= 0xA0:
        return "space"
    if code < 127:
        return "word" if character.isalnum() else "alone"
    spaceless = 0x0E00 <= code < 0x0F00 or 0x1000 <= code < 0x10C0 or 0x1780 <= code < 0x1800
    return "alone" if code < 0xC0 or spaceless or 0x2000 <= code < 0xA000 or code >= 0xE000 else "word"


def reference_tokens(text: str) -> list[str]:
    tokens: list[str] = []
    inside = False
    for character in text:
        found = kind(character)
        folded = "0" if character in "0123456789" else character.lower() if character.isascii() else character
        if found == "word" and inside:
            tokens[-1] += folded
        elif found != "space":
            tokens.append(folded)
        inside = found == "word"
    return tokens


def kernel_tokens(text: str, before: str = "", behind: str = "") -> list[tuple[int, str]]:
    """(hash, text) of each token of a text in the middle of others."""
    values = np.frombuffer((before + text + behind).encode(), np.uint8)
    i, end = len(before.encode()), len((before + text).encode())
    found = []
    while True:
        h, begin, i = next_token(values, i, end)
        if h == 0:
            return found
        found.append((int(h), values[begin:i].tobytes().decode()))


@given(TEXTS, TEXTS)
@example("don't", "")
@example("12,345.6 Ünïcode", "x")
@settings(max_examples=300, deadline=None)
def test_tokens_are_those_of_the_reference(text: str, other: str) -> None:
    expected, found = reference_tokens(text), kernel_tokens(text, other, other)
    assert [reference_tokens(token) for _, token in found] == [[token] for token in expected]
    hashes: dict[str, int] = {}
    for token, (h, _) in zip(expected, found, strict=True):
        assert hashes.setdefault(token, h) == h
    assert len(set(hashes.values())) == len(hashes)


@given(st.lists(TEXTS, max_size=6))
@settings(max_examples=50, deadline=None)
def test_the_tokens_of_a_column_are_those_of_its_texts(texts: list[str]) -> None:
    values = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.concatenate([[0], np.cumsum([len(text.encode()) for text in texts])]).astype(np.int64)
    out, ends = np.empty(len(values) + 1, np.uint64), np.empty(len(texts), np.int64)
    n = all_hashes(values, offsets, out, ends)
    expected = [[h for h, _ in kernel_tokens(text)] for text in texts]
    assert out[:n].tolist() == sum(expected, [])
    assert ends.tolist() == np.cumsum([len(hashes) for hashes in expected]).tolist()
