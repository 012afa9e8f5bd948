"""Decontamination: copies of judged text are found, also as one item inside a long document."""

import random

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from data.decontaminate import JudgedText


def column(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def words(rng: random.Random, count: int) -> list[str]:
    return [f"w{rng.randrange(10**6)}" for _ in range(count)]


def test_the_share_of_a_text_that_is_judged_text():
    rng = random.Random(0)
    judged, other = words(rng, 112), words(rng, 100)
    texts = column(" ".join(judged), " ".join(other), " ".join(judged[:62] + other), "")
    found = JudgedText([" ".join(judged)], as_items=False).overlap(texts)
    assert np.allclose(found.text_share, [1, 0, 50 / 150, 0]) and (found.item == -1).all()


def test_punctuation_and_case_do_not_hide_a_copy():
    text = "It was the best of times, it was the worst of times, it was the age of wisdom."
    disguised = "IT WAS THE BEST OF TIMES -- it was the worst of times; it was the age of \n wisdom"
    assert JudgedText([text], as_items=False).overlap(column(disguised)).text_share[0] == 1


def test_an_item_inside_a_long_document_is_found_and_named():
    rng = random.Random(1)
    items = [" ".join(words(rng, 30)) for _ in range(20)]
    padding = " ".join(words(rng, 5000))
    half = " ".join(items[5].split()[:21])
    found = JudgedText(items, as_items=True).overlap(
        column(f"{padding} {items[7]} {padding}", padding, f"{half} {padding} {half}")
    )
    assert found.item.tolist() == [7, -1, 5]
    assert np.allclose(found.item_share, [1, 0, 9 / 18]) and found.text_share[0] < 0.01


def test_items_that_share_ngrams_are_each_counted_whole():
    rng = random.Random(2)
    common, first, second = words(rng, 20), words(rng, 20), words(rng, 40)
    judged = JudgedText([" ".join(common + first), " ".join(common + second)], as_items=True)
    found = judged.overlap(column(" ".join(common + second), " ".join(common)))
    assert found.item.tolist() == [1, 0] and np.allclose(found.item_share, [1, 8 / 28])


def test_texts_too_short_to_be_recognised_are_counted():
    judged = JudgedText(["one two three", "x " * 13, ""], as_items=True)
    assert (judged.num_texts, judged.num_too_short, judged.num_ngrams) == (3, 2, 1)
    assert JudgedText([], as_items=True).overlap(column("a " * 20)).text_share.tolist() == [0]


WORDS = st.lists(st.sampled_from("abc"), max_size=14)


@given(st.lists(WORDS, max_size=4), st.lists(WORDS, min_size=1, max_size=4), st.integers(2, 4))
@settings(max_examples=200, deadline=None)
def test_shares_are_those_of_plain_sets(judged, texts, n):
    def grams(text: list[str]) -> list[tuple[str, ...]]:
        return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]

    found = JudgedText([" ".join(text) for text in judged], ngram_words=n, as_items=True).overlap(
        column(*map(" ".join, texts))
    )
    every = {gram for text in judged for gram in grams(text)}
    for i, text in enumerate(texts):
        mine = grams(text)
        assert found.text_share[i] == (sum(gram in every for gram in mine) / len(mine) if mine else 0)
        shares = [len(set(grams(item)) & set(mine)) / len(set(grams(item))) if grams(item) else 0.0 for item in judged]
        assert found.item_share[i] == max(shares, default=0.0)
        assert found.item[i] == (shares.index(max(shares)) if max(shares, default=0) > 0 else -1)
