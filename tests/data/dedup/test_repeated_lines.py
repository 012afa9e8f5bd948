"""Repeated lines against a plain reading: how many documents a line stands in, and what is left without it."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.repeated_lines import count_lines, merge_counts, remove_lines

LINE = st.sampled_from(
    [
        "a menu of things",
        "a  menu\tof things ",
        "home",
        "日本語の長い一行です",
        "x",
        "",
        " ",
        "z" * 130,
        "other long line\r",
    ]
)
TEXTS = st.lists(st.tuples(st.lists(LINE, max_size=6), st.booleans()), min_size=1, max_size=6).map(
    lambda texts: ["\n".join(lines) + "\n" * ends for lines, ends in texts]
)


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(["before", *texts], pa.large_string()).slice(1)


def lines_of(text: str, least: int) -> list[tuple[str, str]]:
    """(line with its line feed, what it is compared by, or nothing if it is too short)."""
    pieces = text.split("\n")
    lines = [piece + "\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    keys = [" ".join(line.split()) for line in lines]
    return [(line, key if len(key) >= least else "") for line, key in zip(lines, keys, strict=True)]


@given(TEXTS, st.integers(1, 17))
@settings(max_examples=100, deadline=None)
def test_counts_are_of_documents(texts, least):
    expected = Counter(key for text in texts for key in {key for _, key in lines_of(text, least)} if key)
    hashes, counts = count_lines(column(texts), least)
    assert sorted(counts.tolist()) == sorted(expected.values())
    assert (np.diff(hashes.astype(object)) > 0).all()
    for key, count in expected.items():
        (one,), _ = count_lines(column([key]), 1)
        assert counts[np.searchsorted(hashes, one)] == count and one in hashes


@given(TEXTS, st.sets(st.sampled_from(["a menu of things", "home", "日本語の長い一行です", "x", "nowhere at all"])))
@settings(max_examples=100, deadline=None)
def test_what_is_left_is_all_but_the_lines_of_the_table(texts, unwanted):
    table = np.sort(np.array([count_lines(column([line]), 1)[0][0] for line in unwanted], np.uint64))
    before = column(texts)
    after, removed_bytes, removed_lines = remove_lines(before, table, 4)
    expected = ["".join(line for line, key in lines_of(text, 4) if key not in unwanted) for text in texts]
    assert after.to_pylist() == expected
    sizes = [len(text.encode()) for text in texts]
    assert removed_bytes.tolist() == [a - len(b.encode()) for a, b in zip(sizes, expected, strict=True)]
    assert removed_lines.tolist() == [sum(key in unwanted for _, key in lines_of(text, 4)) for text in texts]
    assert removed_lines.any() or after is before


@given(TEXTS, st.integers(0, 6))
@settings(max_examples=50, deadline=None)
def test_merged_counts_are_those_of_all_texts(texts, cut):
    parts = [count_lines(column(part), 4) for part in (texts[:cut], texts[cut:])]
    for merged, whole in zip(merge_counts(parts), count_lines(column(texts), 4), strict=True):
        assert merged.tolist() == whole.tolist() and merged.dtype == whole.dtype
    assert [len(values) for values in merge_counts([])] == [0, 0]
