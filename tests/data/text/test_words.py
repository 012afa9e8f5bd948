"""The word kernels against a plain-Python reading of what a word is."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.text.characters import LETTER, MARK, SEPARATOR, SINGLE, character_class, decode
from data.text.words import ngram_hashes
from tests.data.text.ngram_sets import hash_texts

ALPHABET = st.sampled_from("aB9_ .\n\té¿ßяЖ한글中文のカ、。\u3000\u2028ไทยกี่က်្ខہहिहذا😀𠀀½×Ā\u0301֎")
PIECES = st.sampled_from(
    [
        "a",
        "B9",
        " ",
        "x" * 7,
        "Word",
        "y" * 61,
        "é",
        "ж" * 30,
        "中文",
        "の",
        "กี่",
        "かが",
        "\u0301",
        "ÿ",
        "÷",
        "한글",
        "𠀀",
        "😀 ",
    ]
)
TEXTS = st.one_of(st.text(max_size=80), st.text(ALPHABET, max_size=60), st.lists(PIECES, max_size=60).map("".join))


def reference_words(text: str) -> list[str]:
    words, word, closed = [], "", False
    for character in text:
        kind = character_class(ord(character))
        if word and (kind in (SEPARATOR, SINGLE) or kind == LETTER and closed):
            words, word = [*words, word], ""
        if kind != SEPARATOR:
            word += character.lower() if ord(character) < 128 else character
            closed = kind == SINGLE or closed and kind == MARK and len(word) > 1
    return [*words, word] if word else words


def kernel_words(text: str) -> list[int]:
    values = np.frombuffer(text.encode(), np.uint8)
    out = np.zeros(len(values) // 2 + 1, np.uint64)
    return out[: ngram_hashes(values, 0, len(values), 1, out)[0]].tolist()


@given(TEXTS)
@settings(max_examples=400, deadline=None)
def test_words_are_those_of_the_reference(text):
    expected = reference_words(text)
    found = kernel_words(text)
    assert len(found) == len(expected)
    by_word: dict[str, int] = {}
    for word, h in zip(expected, found, strict=True):
        assert kernel_words(f" {word}!") == [h], "the hash of a word depends on the word alone"
        assert by_word.setdefault(word, h) == h
    assert len(set(by_word.values())) == len(by_word)


@given(TEXTS, st.integers(0, 70), TEXTS)
@settings(max_examples=200, deadline=None)
def test_words_do_not_depend_on_what_stands_around_the_text_in_its_buffer(text, shift, behind):
    before = b"y" * shift
    values = np.frombuffer(before + text.encode() + behind.encode(), np.uint8)
    out = np.zeros(len(values) // 2 + 1, np.uint64)
    count, _ = ngram_hashes(values, shift, shift + len(text.encode()), 1, out)
    assert out[:count].tolist() == kernel_words(text)


@given(st.binary(max_size=150))
@settings(max_examples=100, deadline=None)
def test_bytes_that_are_not_utf8_break_nothing(data):
    values = np.frombuffer(data, np.uint8)
    out = np.zeros(len(values) // 2 + 2, np.uint64)
    assert ngram_hashes(values, 0, len(values), 1, out[:-1])[0] <= len(out) - 1 and out[-1] == 0


def test_a_word_of_any_length_has_its_own_hash():
    words = (
        ["a" * n for n in range(1, 200)] + ["A" * 20 + "b" * n for n in range(1, 40)] + ["ж" * n for n in range(1, 40)]
    )
    assert len({kernel_words(word)[0] for word in words}) == len(words)
    assert kernel_words("a" * 20 + "ZE") == kernel_words("A" * 20 + "ze") != kernel_words("a" * 20 + "ZÉ")


@given(TEXTS, st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_ngrams_are_equal_exactly_where_their_words_are(text, n):
    words = reference_words(text)
    grams = {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}
    (found,) = hash_texts([text.encode()], n)
    assert len(found) == len(grams)
    each = [hash_texts([" ".join(gram).encode()], n)[0] for gram in sorted(grams)]
    assert all(len(one) == 1 for one in each) and {int(one[0]) for one in each} == set(found.tolist())


@given(TEXTS, st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_ngrams_stand_in_the_order_of_their_words_and_repeat_with_them(text, n):
    words = reference_words(text)
    values = np.frombuffer(text.encode(), np.uint8)
    out = np.zeros(len(values) // 2 + 1, np.uint64)
    num_words, num_grams = ngram_hashes(values, 0, len(values), n, out)
    assert (num_words, num_grams) == (len(words), max(0, len(words) - n + 1))
    by_gram: dict[tuple[str, ...], int] = {}
    for place, found in enumerate(out[:num_grams].tolist()):
        assert by_gram.setdefault(tuple(words[place : place + n]), found) == found
    assert not out[num_grams:].any()


def test_the_largest_number_of_words_fits():
    for text in ("a b" * 50, "a " * 70 + "a", "中" * 64, "a中" * 40):
        values = np.frombuffer(text.encode(), np.uint8)
        out = np.zeros(len(values) // 2 + 1, np.uint64)
        assert ngram_hashes(values, 0, len(values), 1, out) == (len(reference_words(text)),) * 2


@given(st.characters(exclude_categories=["Cs"]))
@settings(max_examples=200, deadline=None)
def test_decoding_is_that_of_utf8(character):
    values = np.frombuffer(character.encode(), np.uint8)
    assert decode(values, 0) == (ord(character), len(values))


@pytest.mark.parametrize(
    ("characters", "kind"),
    [
        ("aZ09éßÀÿªµºяЖπहعשקሀက၁๑한Ａ７ｱﬁᎣㄱㄅ".replace("က", ""), LETTER),
        ("中文々〇のカー㐀𠀀豈กไะຂကខ", SINGLE),
        ("\u0301ִّิ่ี່ိြ់៉\u3099ा्", MARK),
        (" _'\x80\x85\xa0¿×÷«»½–—“”…،।\u2028\u3000、。「」・（），！：；？［～｡€→∀😀\ufffd\ufeff\ue000་", SEPARATOR),
    ],
)
def test_classes_of_characters(characters, kind):
    assert {c: character_class(ord(c)) for c in characters} == dict.fromkeys(characters, kind)


def test_classes_are_those_of_the_unicode_categories():
    """Letters, marks and digits are in words; spaces, punctuation and symbols are not."""
    wrong = []
    for code_point in range(0x2000):
        category = unicodedata.ucd_3_2_0.category(chr(code_point))
        expected = category[0] in "LM" or category in ("Nd", "Cn")
        if category != "Cn" and expected != (character_class(code_point) != SEPARATOR):
            wrong.append(chr(code_point))
    assert not wrong


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ภาษาไทย", ["ภ", "า", "ษ", "า", "ไ", "ท", "ย"]),
        ("กี่วัน abc", ["กี่", "วั", "น", "abc"]),
        ("日本語のテスト", list("日本語のテスト")),
        ("का नाम", ["का", "नाम"]),
        ("don't stop_it 3.14", ["don", "t", "stop", "it", "3", "14"]),
        ("中abc文", ["中", "abc", "文"]),
    ],
)
def test_examples(text, words):
    assert reference_words(text) == words
    assert kernel_words(text) == [kernel_words(word)[0] for word in words]
