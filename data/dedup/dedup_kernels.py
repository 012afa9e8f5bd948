"""Kernels of duplicate removal: buffers in, buffers out, without the GIL. The meaning of each is in
data/dedup/duplicates.py.

Payloads (sets of n-grams, texts) stand in memory-mapped files: kernels get the addresses of their uint64 values.
"""

import numba
import numpy as np

from data.dedup.join_kernels import flatten, root_of, table_size
from data.dedup.signature_kernels import single_spaced
from data.text.block_bytes import BLOCK_BYTES
from data.text.inner import inner
from data.text.machine import copy_bytes, load8_at
from data.text.words import longest, ngram_hashes

ANOTHER_TEXT = -1

_ONE, _EIGHT = np.uint64(1), np.uint64(8)


@inner
def _clear(table: np.ndarray, size: int) -> None:
    for slot in range(size):
        table[slot] = 0


@numba.njit(nogil=True, cache=True)
def write_gram_sets(
    values: np.ndarray,
    offsets: np.ndarray,
    rows: np.ndarray,
    n: int,
    out: np.ndarray,
    places: np.ndarray,
    room: np.ndarray,
    counts: np.ndarray,
) -> None:
    """The distinct n-gram hashes of texts, none of them 0, in the order in which they come first, to out[places[r]:].

    rows: int64[m]; places: int64[m], with room: int64[m] for all n-grams of the row behind each; counts: int64[m], set,
    to ANOTHER_TEXT if the room is not what the text needs.
    """
    grams = np.empty(longest(offsets) // 2 + 1, np.uint64)
    table = np.empty(16, np.uint64)
    for r in range(len(rows)):
        _, num_grams = ngram_hashes(values, offsets[rows[r]], offsets[rows[r] + 1], n, grams)
        if num_grams != room[r]:
            counts[r] = ANOTHER_TEXT
            continue
        size = table_size(num_grams)
        if size > len(table):
            table = np.empty(size, np.uint64)
        _clear(table, size)
        mask = np.uint64(size - 1)
        first = place = places[r]
        for g in range(num_grams):
            gram = grams[g] if grams[g] != 0 else _ONE
            slot = gram & mask
            while table[slot] != 0 and table[slot] != gram:
                slot = (slot + _ONE) & mask
            if table[slot] == 0:
                table[slot] = gram
                out[place] = gram
                place += 1
        counts[r] = place - first


@numba.njit(nogil=True, cache=True)
def write_single_spaced(
    values: np.ndarray,
    offsets: np.ndarray,
    rows: np.ndarray,
    out: np.ndarray,
    places: np.ndarray,
    room: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Texts with runs of white space as one space, to out[8 * places[r]:], with zeros behind them up to a multiple of
    eight bytes.

    out: uint8. rows: int64[m]; places, room: int64[m], in units of eight bytes; counts: int64[m], set to bytes, to
    ANOTHER_TEXT if the room is not what the text needs.
    """
    text = np.empty(longest(offsets) + BLOCK_BYTES, np.uint8)
    for r in range(len(rows)):
        num_bytes = single_spaced(values, offsets[rows[r]], offsets[rows[r] + 1], text)
        if (num_bytes + 7) // 8 != room[r]:
            counts[r] = ANOTHER_TEXT
            continue
        for k in range(num_bytes, 8 * room[r]):
            text[k] = 0
        copy_bytes(out, 8 * places[r], text, 0, 8 * room[r])
        counts[r] = num_bytes


@numba.njit(nogil=True, cache=True)
def assign_exact(prints: np.ndarray, addresses: np.ndarray, counts: np.ndarray, survivor: np.ndarray) -> None:
    """Each document, in the order of fingerprint and rank, repeats the last kept one before it if their texts are
    equal.

    prints: uint64[c, 2]. addresses: uint64[c] of texts of counts: int64[c] bytes. survivor: int64[c], set, -1 for
    none.
    """
    kept = 0
    for d in range(len(addresses)):
        survivor[d] = -1
        same = (
            d > 0 and prints[d, 0] == prints[kept, 0] and prints[d, 1] == prints[kept, 1] and counts[d] == counts[kept]
        )
        a, b = addresses[d], addresses[kept]
        for _ in range((counts[d] + 7) // 8 if same else 0):
            if load8_at(a) != load8_at(b):
                same = False
                break
            a += _EIGHT
            b += _EIGHT
        if same:
            survivor[d] = kept
        else:
            kept = d


@numba.njit(nogil=True, cache=True)
def _least_common(a: int, b: int, threshold: float) -> int:
    """The least number of common elements with which sets of a and b elements reach the threshold."""
    common = max(0, int(threshold * (a + b) / (1 + threshold)) - 1)
    while common < a + b and common / (a + b - common) < threshold:
        common += 1
    return common


@inner
def _fill(table: np.ndarray, size: int, address: np.uint64, count: int) -> None:
    """Puts the set at `address` into table[:size]."""
    _clear(table, size)
    mask = np.uint64(size - 1)
    for _ in range(count):
        gram = load8_at(address)
        address += _EIGHT
        slot = gram & mask
        while table[slot] != 0:
            slot = (slot + _ONE) & mask
        table[slot] = gram


@inner
def _common(table: np.ndarray, size: int, address: np.uint64, count: int, most_missing: int) -> int:
    """Elements of the set at `address` that are in table[:size]; too few once more than `most_missing` are not."""
    mask = np.uint64(size - 1)
    missing = 0
    for i in range(count):
        gram = load8_at(address)
        address += _EIGHT
        slot = gram & mask
        while table[slot] != 0 and table[slot] != gram:
            slot = (slot + _ONE) & mask
        if table[slot] == 0:
            missing += 1
            if missing > most_missing:
                return i + 1 - missing
    return count - missing


@inner
def _agreement(sketches: np.ndarray, a: int, b: int) -> int:
    """Equal values of two rows."""
    equal = 0
    for k in range(sketches.shape[1]):
        equal += sketches[a, k] == sketches[b, k]
    return equal


@inner
def _empty_buckets(bucket_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(room for the members of all buckets, where the next member of each goes)."""
    fill = np.empty(len(bucket_offsets) - 1, np.int64)
    for bucket in range(len(fill)):
        fill[bucket] = bucket_offsets[bucket]
    return np.empty(bucket_offsets[-1], np.int64), fill


@numba.njit(nogil=True, cache=True)
def unite_similar(
    buckets: np.ndarray,
    bucket_offsets: np.ndarray,
    sketches: np.ndarray,
    addresses: np.ndarray,
    counts: np.ndarray,
    threshold: float,
    least_agreement: int,
    parent: np.ndarray,
) -> None:
    """Joins the sets of documents that share a bucket and are exactly similar enough; one that is joined already is
    not compared. parent: int64[c], set to the least document of each set. The others are those of `assign_near`."""
    num_documents, num_bands = buckets.shape
    members, fill = _empty_buckets(bucket_offsets)
    table = np.empty(16, np.uint64)
    for d in range(num_documents):
        parent[d] = d
        size = 0
        for b in range(num_bands):
            bucket = buckets[d, b]
            if bucket < 0:
                continue
            for m in range(bucket_offsets[bucket], fill[bucket]):
                other = members[m]
                root, other_root = root_of(parent, d), root_of(parent, other)
                if root == other_root or _agreement(sketches, d, other) < least_agreement:
                    continue
                if size == 0:
                    size = table_size(counts[d])
                    if size > len(table):
                        table = np.empty(size, np.uint64)
                    _fill(table, size, addresses[d], counts[d])
                needed = _least_common(counts[d], counts[other], threshold)
                if _common(table, size, addresses[other], counts[other], counts[other] - needed) >= needed:
                    parent[max(root, other_root)] = min(root, other_root)
            members[fill[bucket]] = d
            fill[bucket] += 1
    flatten(parent)


@numba.njit(nogil=True, cache=True)
def assign_near(
    buckets: np.ndarray,
    bucket_offsets: np.ndarray,
    sketches: np.ndarray,
    addresses: np.ndarray,
    counts: np.ndarray,
    threshold: float,
    least_agreement: int,
    most_compared: int,
    most_members: int,
    num_fixed: int,
    survivor: np.ndarray,
    similarity: np.ndarray,
) -> int:
    """Walks documents, which stand in the order of their rank; each is kept, or removed in favour of a kept one that
    is exactly similar enough. Returns pairs compared exactly.

    buckets: int64[c, bands], -1 where a document shares its band with none; bucket_offsets: int64[num_buckets + 1].
    The first num_fixed documents are kept whatever they resemble.
    sketches: uint8[c, k]. addresses: uint64[c] of sets of n-grams of counts: int64[c] elements.
    survivor: int64[c], set to the survivor of each removed document and -1 for kept ones; similarity: float64[c], set.
    """
    num_documents, num_bands = buckets.shape
    members, fill = _empty_buckets(bucket_offsets)
    seen, found, agreements = (
        np.empty(num_documents, np.int64),
        np.empty(num_documents, np.int64),
        np.empty(num_documents, np.int64),
    )
    table = np.empty(16, np.uint64)
    compared = 0
    for d in range(num_documents):
        survivor[d], similarity[d], seen[d] = -1, 0.0, -1
        num_found = 0
        for b in range(num_bands if d >= num_fixed else 0):
            bucket = buckets[d, b]
            if bucket < 0:
                continue
            for m in range(bucket_offsets[bucket], fill[bucket]):
                other = members[m]
                if seen[other] == d:
                    continue
                seen[other] = d
                agreement = _agreement(sketches, d, other)
                if agreement >= least_agreement:
                    found[num_found], agreements[num_found] = other, agreement
                    num_found += 1
        size = table_size(counts[d])
        if num_found > 0:
            if size > len(table):
                table = np.empty(size, np.uint64)
            _fill(table, size, addresses[d], counts[d])
        for _ in range(min(num_found, most_compared)):
            best = 0
            for f in range(1, num_found):
                if agreements[f] > agreements[best] or agreements[f] == agreements[best] and found[f] < found[best]:
                    best = f
            agreements[best] = -1
            other = found[best]
            compared += 1
            needed = _least_common(counts[d], counts[other], threshold)
            common = _common(table, size, addresses[other], counts[other], counts[other] - needed)
            if common >= needed:
                survivor[d] = other
                similarity[d] = common / (counts[d] + counts[other] - common)
                break
        if survivor[d] < 0:
            for b in range(num_bands):
                bucket = buckets[d, b]
                if bucket >= 0 and fill[bucket] - bucket_offsets[bucket] < most_members:
                    members[fill[bucket]] = d
                    fill[bucket] += 1
    return compared
