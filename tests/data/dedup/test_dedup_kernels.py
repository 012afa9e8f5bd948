"""The kernels of duplicate removal against plain Python."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup import dedup_kernels as kernels
from data.dedup import join_kernels
from data.dedup.duplicates import shared_buckets
from data.reading.tables import text_buffers
from tests.data.dedup.signed import column
from tests.data.text.ngram_sets import hash_texts

MASK = 2**64 - 1
KEYS = st.sampled_from([0, 1, 5, 2**63, 2**63 + 1, MASK, 77 << 40])
SETS = st.lists(st.sets(st.integers(1, 14), min_size=1), min_size=1, max_size=8)


def places_of(sets: list[list[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(values, addresses, counts) of sets one after another."""
    counts = np.array([len(elements) for elements in sets], np.int64)
    values = np.array([element for elements in sets for element in elements] + [0], np.uint64)
    begins = (np.cumsum(counts) - counts).astype(np.uint64)
    return values, np.uint64(values.ctypes.data) + np.uint64(8) * begins, counts


@given(st.lists(st.lists(KEYS, min_size=3, max_size=3), max_size=12), st.sampled_from([1, 2, 8]), st.data())
@settings(max_examples=60, deadline=None)
def test_keys_are_sorted_into_bands_and_ranges(keys, num_ranges, data):
    local = np.array(sorted(data.draw(st.sets(st.integers(0, len(keys) - 1)))) if keys else [], np.int64)
    table = np.array(keys, np.uint64).reshape(-1, 3)
    counts, out = np.zeros((3, num_ranges), np.int64), np.zeros((3 * len(local), 2), np.uint64)
    join_kernels.scatter_keys(table, local, 100, 64 - num_ranges.bit_length() + 1, counts, out)
    expected = [
        [int(table[row, band]), 100 + row]
        for band in range(3)
        for part in range(num_ranges)
        for row in local.tolist()
        if int(table[row, band]) * num_ranges >> 64 == part
    ]
    assert out.tolist() == expected
    assert counts.sum() == len(out) and (counts.sum(axis=1) == len(local)).all()


@given(st.lists(KEYS, max_size=20))
@settings(max_examples=60, deadline=None)
def test_each_later_row_with_a_key_is_linked_to_the_first(keys):
    entries = np.array([[key, 10 + row] for row, key in enumerate(keys)], np.uint64).reshape(-1, 2)
    links = np.zeros((len(keys), 2), np.int64)
    count = join_kernels.link_equal_keys(entries, links)
    assert links[:count].tolist() == [
        [10 + keys.index(key), 10 + row] for row, key in enumerate(keys) if keys.index(key) < row
    ]


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=20))
@settings(max_examples=60, deadline=None)
def test_sets_that_are_joined_have_their_least_row_for_a_root(pairs):
    parent = np.arange(16)
    join_kernels.unite(parent, np.array(pairs, np.int64).reshape(-1, 2))
    join_kernels.flatten(parent)
    label = list(range(16))
    for _ in range(16):
        for a, b in pairs:
            label = [min(label[a], label[b]) if of in (label[a], label[b]) else of for of in label]
    assert parent.tolist() == label


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=12).map(" ".join), min_size=1, max_size=6), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_gram_sets_are_distinct_and_have_room(texts, n):
    values, offsets = text_buffers(column(["x", *texts]).slice(1))
    rows = np.arange(0, len(texts), 2)
    room = np.array([max(0, len(texts[row].split()) - n + 1) for row in rows])
    places, counts = np.cumsum(room) - room + 1, np.zeros(len(rows), np.int64)
    out = np.full(room.sum() + 2, 7, np.uint64)
    kernels.write_gram_sets(values, offsets, rows, n, out, places, room, counts)
    assert out[0] == out[-1] == 7
    kernels.write_gram_sets(values, offsets, rows, n, out, places, room + 1, wrong := np.zeros(len(rows), np.int64))
    assert (wrong == kernels.ANOTHER_TEXT).all()
    for row, place, count in zip(rows, places, counts, strict=True):
        assert sorted(out[place : place + count].tolist()) == hash_texts([texts[row].encode()], n)[0].tolist()


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([0.5, 0.7, 0.75, 0.8, 0.9, 1.0]))
@settings(max_examples=200, deadline=None)
def test_the_least_common_number_is_the_first_that_reaches_the_threshold(a, b, threshold):
    least = kernels._least_common(a, b, threshold)
    reached = [c for c in range(max(1, a + b)) if a + b - c > 0 and c / (a + b - c) >= threshold]
    assert least == reached[0] if reached else least >= a + b


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([b"", b"a", b"12345678", b"12345678b", b"12345678c"])),
        min_size=1,
        max_size=10,
    )
)
@settings(max_examples=60, deadline=None)
def test_equal_fingerprints_alone_do_not_make_a_duplicate(documents):
    documents = sorted(documents, key=lambda document: document[0])
    padded = [text + bytes(-len(text) % 8) for _, text in documents]
    words = [np.frombuffer(text, np.uint64).tolist() for text in padded]
    values, addresses, _ = places_of(words)
    prints = np.array([[print_, print_] for print_, _ in documents], np.uint64)
    survivor = np.zeros(len(documents), np.int64)
    kernels.assign_exact(prints, addresses, np.array([len(text) for _, text in documents]), survivor)
    kept = 0
    for row, document in enumerate(documents):
        if row and document == documents[kept]:
            assert survivor[row] == kept
        else:
            assert survivor[row] == -1
            kept = row
    assert len(values)


@given(SETS, st.sampled_from([0.3, 0.5, 0.8]), st.integers(0, 3), st.data())
@settings(max_examples=150, deadline=None)
def test_survivors_are_those_of_a_plain_walk(sets, threshold, num_fixed, data):
    """With every sketch equal, the most similar by agreement is the first by rank."""
    n = len(sets)
    bands = np.array(data.draw(st.lists(st.lists(KEYS, min_size=2, max_size=2), min_size=n, max_size=n)), np.uint64)
    values, addresses, counts = places_of([data.draw(st.permutations(sorted(elements))) for elements in sets])
    survivor, similarity = np.zeros(n, np.int64), np.zeros(n)
    arguments = (*shared_buckets(bands), np.zeros((n, 4), np.uint8), addresses, counts, threshold, 4)
    kernels.assign_near(*arguments, 32, 1024, num_fixed, survivor, similarity)
    expected, measured = [-1] * n, [0.0] * n
    for row in range(num_fixed, n):
        for other in range(row):
            shares = (bands[row] == bands[other]).any()
            jaccard = len(sets[row] & sets[other]) / len(sets[row] | sets[other])
            if shares and expected[other] < 0 and jaccard >= threshold:
                expected[row], measured[row] = other, jaccard
                break
    assert survivor.tolist() == expected and similarity.tolist() == measured
    parent = np.zeros(n, np.int64)
    kernels.unite_similar(*arguments, parent)
    label = list(range(n))
    for row in range(n):
        for other in range(row):
            jaccard = len(sets[row] & sets[other]) / len(sets[row] | sets[other])
            if (bands[row] == bands[other]).any() and jaccard >= threshold:
                least = min(label[row], label[other])
                label = [least if of in (label[row], label[other]) else of for of in label]
    assert parent.tolist() == label
    assert len(values)


def test_the_most_agreeing_are_compared_first_and_no_more_than_asked_for():
    sets = [[1, 2, 3, 4], [1, 2, 3, 9], [1, 2, 3, 4]]
    sketches = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 0]], np.uint8)
    values, addresses, counts = places_of(sets)
    buckets, offsets = np.zeros((3, 1), np.int64), np.array([0, 3])
    for most_compared, least_agreement, most_members, expected, compared in (
        (32, 0, 9, [-1, -1, 0], 3),
        (1, 0, 9, [-1, -1, -1], 2),
        (32, 3, 9, [-1, -1, -1], 1),
        (32, 0, 1, [-1, -1, 0], 2),
    ):
        survivor, similarity = np.zeros(3, np.int64), np.zeros(3)
        found = kernels.assign_near(
            buckets, offsets, sketches, addresses, counts, 0.8, least_agreement, most_compared, most_members, 0,
            survivor, similarity,
        )  # fmt: skip
        assert (survivor.tolist(), found) == (expected, compared)
    assert len(values)


@given(st.lists(st.lists(KEYS, min_size=2, max_size=2), min_size=1, max_size=10))
@settings(max_examples=60, deadline=None)
def test_shared_buckets_are_those_of_equal_keys(keys):
    table = np.array(keys, np.uint64)
    buckets, offsets = shared_buckets(table)
    for band in range(2):
        for row in range(len(keys)):
            same = table[:, band] == table[row, band]
            assert (buckets[row, band] >= 0) == (same.sum() > 1)
            if same.sum() > 1:
                assert ((buckets[:, band] == buckets[row, band]) == same).all()
                assert offsets[buckets[row, band] + 1] - offsets[buckets[row, band]] == same.sum()
    assert all(a < b for a, b in pairwise(offsets.tolist()))
