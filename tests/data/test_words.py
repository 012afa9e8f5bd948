"""The word kernels against a plain-Python reading of what a word is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.words import LETTER, SEPARATOR, SINGLE, character_class, decode, hash_texts, next_word

ASCII_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
ALPHABET = st.sampled_from("aB9_ .\n\té¿ßяЖ한글中文のカ、。\u3000\u2028ไทยهذا😀𠀀½")
TEXTS = st.one_of(st.text(), st.text(ALPHABET, max_size=60))


def reference_words(text: str) -> list[str]:
    words, word = [], ""
    for character in text:
        code = ord(character)
        kind = (LETTER if character in ASCII_LETTERS else SEPARATOR) if code < 128 else character_class(code)
        if kind != LETTER and word:
            words, word = [*words, word], ""
        if kind == SINGLE:
            words.append(character)
        elif kind == LETTER:
            word += character.lower() if code < 128 else character
    return [*words, word] if word else words


def kernel_words(text: str) -> list[tuple[int, str]]:
    """(hash, text up to the end of the word) of each word."""
    values = np.frombuffer(text.encode(), np.uint8)
    found, i = [], 0
    while True:
        h, i = next_word(values, i, len(values))
        if h == 0:
            return found
        found.append((int(h), bytes(values[:i]).decode()))


@given(TEXTS)
@settings(max_examples=300, deadline=None)
def test_words_are_those_of_the_reference(text):
    expected = reference_words(text)
    found = kernel_words(text)
    assert len(found) == len(expected)
    by_word: dict[str, int] = {}
    for word, (h, before) in zip(expected, found, strict=True):
        assert reference_words(before)[-1] == word
        assert by_word.setdefault(word, h) == h
    assert len(set(by_word.values())) == len(by_word)


@given(TEXTS, st.integers(2, 6))
@settings(max_examples=300, deadline=None)
def test_ngrams_are_equal_exactly_where_their_words_are(text, n):
    words = reference_words(text)
    grams = {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}
    (found,) = hash_texts([text.encode()], n)
    assert len(found) == len(grams)
    joined = [" ".join(gram) for gram in sorted(grams)]
    each = [hash_texts([gram.encode()], n)[0] for gram in joined]
    assert all(len(one) == 1 for one in each) and {int(one[0]) for one in each} == set(found.tolist())


@given(st.characters(exclude_categories=["Cs"]))
@settings(max_examples=300, deadline=None)
def test_decoding_is_that_of_utf8(character):
    values = np.frombuffer(character.encode(), np.uint8)
    assert decode(values, 0) == (ord(character), len(values))


@pytest.mark.parametrize(
    ("characters", "kind"),
    [
        ("éßÀÿªµºяЖπहิعשไກ한Ａ７ｱﬁᎣㄱㄅ", LETTER),
        ("中文々〇のカー㐀𠀀豈", SINGLE),
        ("\x80\x85\xa0¿×÷«»½–—“”…\u2028\u3000、。「」・（），！：；？［～｡€→∀😀\ufffd\ufeff\ue000", SEPARATOR),
    ],
)
def test_classes_of_characters(characters, kind):
    assert {c: character_class(ord(c)) for c in characters} == dict.fromkeys(characters, kind)
