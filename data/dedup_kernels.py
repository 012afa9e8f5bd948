"""Kernels of duplicate removal: buffers in, buffers out, without the GIL. The meaning of each is in data/dedup.py."""

import numba
import numpy as np

from data.words import longest, ngram_hashes

_PRIME = np.uint64(0x100000001B3)
_PRIME_2 = np.uint64(0x9FB21C651E98DF25)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
NOTHING = np.uint32(0xFFFFFFFF)


@numba.njit(nogil=True, cache=True)
def _is_space(byte: int) -> bool:
    return byte == 32 or 9 <= byte <= 13


@numba.njit(nogil=True, cache=True)
def fingerprints(values: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """out: uint64[n, 2] of each text with runs of ASCII white space as one space, and none at either end."""
    for d in range(len(offsets) - 1):
        a, b = np.uint64(0xCBF29CE484222325), np.uint64(0x84222325CBF29CE4)
        pending = started = False
        for i in range(offsets[d], offsets[d + 1]):
            byte = values[i]
            if _is_space(byte):
                pending = started
                continue
            if pending:
                a = (a ^ np.uint64(32)) * _PRIME
                b = (b + np.uint64(32)) * _PRIME_2
                b ^= b >> np.uint64(29)
                pending = False
            a = (a ^ np.uint64(byte)) * _PRIME
            b = (b + np.uint64(byte)) * _PRIME_2
            b ^= b >> np.uint64(29)
            started = True
        out[d, 0] = (a ^ (a >> np.uint64(32))) * _MIX
        out[d, 1] = b


@numba.njit(nogil=True, cache=True)
def equal_but_for_space(left: np.ndarray, i: int, i_end: int, right: np.ndarray, j: int, j_end: int) -> bool:
    """Whether two texts are equal once runs of ASCII white space are one space, and none at either end."""
    while i < i_end and _is_space(left[i]):
        i += 1
    while j < j_end and _is_space(right[j]):
        j += 1
    while i < i_end and j < j_end:
        if _is_space(left[i]) != _is_space(right[j]):
            break
        if _is_space(left[i]):
            while i < i_end and _is_space(left[i]):
                i += 1
            while j < j_end and _is_space(right[j]):
                j += 1
        else:
            if left[i] != right[j]:
                return False
            i += 1
            j += 1
    while i < i_end and _is_space(left[i]):
        i += 1
    while j < j_end and _is_space(right[j]):
        j += 1
    return i == i_end and j == j_end


@numba.njit(nogil=True, cache=True)
def minhash(
    values: np.ndarray,
    offsets: np.ndarray,
    n: int,
    factors: np.ndarray,
    shifts: np.ndarray,
    signatures: np.ndarray,
    num_grams: np.ndarray,
) -> None:
    """signatures: uint32[d, k], the least of each of k hash functions over the n-grams; num_grams: int64[d]."""
    grams = np.empty(longest(offsets) // 2 + 1, np.uint64)
    least = np.empty(len(factors), np.uint32)
    for d in range(len(offsets) - 1):
        least[:] = NOTHING
        _, count = ngram_hashes(values, offsets[d], offsets[d + 1], n, grams)
        for g in range(count):
            x = np.uint32(grams[g] & np.uint64(0xFFFFFFFF))
            for k in range(len(factors)):
                h = np.uint32(x * factors[k] + shifts[k])
                h = np.uint32(h ^ (h >> np.uint32(15)))
                if h < least[k]:
                    least[k] = h
        signatures[d] = least
        num_grams[d] = count


@numba.njit(nogil=True, cache=True)
def band_keys(signatures: np.ndarray, bands: int, rows: int, out: np.ndarray) -> None:
    """out: uint64[bands, d], one hash of `rows` signature values each."""
    for d in range(signatures.shape[0]):
        for b in range(bands):
            key = np.uint64(b + 1)
            for r in range(rows):
                key = (key ^ np.uint64(signatures[d, b * rows + r])) * _PRIME_2
                key ^= key >> np.uint64(31)
            out[b, d] = key


@numba.njit(nogil=True, cache=True)
def gram_sets(
    values: np.ndarray, offsets: np.ndarray, wanted: np.ndarray, n: int, room: int
) -> tuple[np.ndarray, np.ndarray]:
    """The sorted distinct n-gram hashes of the wanted texts, one after another: (uint64[m], int64 number of each text,
    0 if not wanted).

    room: at least the number of n-grams of the wanted texts.
    """
    scratch = np.empty(longest(offsets) // 2 + 1, np.uint64)
    found = np.empty(room, np.uint64)
    counts = np.zeros(len(offsets) - 1, np.int64)
    m = 0
    for d in range(len(offsets) - 1):
        if not wanted[d]:
            continue
        _, count = ngram_hashes(values, offsets[d], offsets[d + 1], n, scratch)
        ordered = np.sort(scratch[:count])
        first = m
        for g in range(count):
            if g == 0 or ordered[g] != ordered[g - 1]:
                found[m] = ordered[g]
                m += 1
        counts[d] = m - first
    return found[:m].copy(), counts


@numba.njit(nogil=True, cache=True)
def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """Of two sorted sets."""
    i = j = common = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            common += 1
            i += 1
            j += 1
        elif a[i] < b[j]:
            i += 1
        else:
            j += 1
    union = len(a) + len(b) - common
    return common / union if union else 0.0


@numba.njit(nogil=True, cache=True)
def assign_survivors(
    buckets: np.ndarray,
    bucket_offsets: np.ndarray,
    signatures: np.ndarray,
    grams: np.ndarray,
    gram_offsets: np.ndarray,
    threshold: float,
    least_agreement: int,
    most_compared: int,
    survivor: np.ndarray,
    similarity: np.ndarray,
) -> int:
    """Walks documents, which stand in the order of their rank; each is kept, or removed in favour of a kept one that is
    exactly similar enough.

    buckets: int64[c, bands], -1 where a document shares its band with none; bucket_offsets: int64[num_buckets + 1].
    survivor: int64[c], set to the survivor of each removed document (left at -1 for kept ones); similarity: float64[c].
    Returns pairs compared exactly.
    """
    num_documents, num_bands = buckets.shape
    members = np.empty(bucket_offsets[-1], np.int64)
    fill = bucket_offsets[:-1].copy()
    seen = np.full(num_documents, -1, np.int64)
    capacity = 64
    found, agreements = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    compared = 0
    for d in range(num_documents):
        num_found = 0
        for b in range(num_bands):
            bucket = buckets[d, b]
            if bucket < 0:
                continue
            for m in range(bucket_offsets[bucket], fill[bucket]):
                other = members[m]
                if seen[other] == d:
                    continue
                seen[other] = d
                agreement = 0
                for k in range(signatures.shape[1]):
                    agreement += signatures[d, k] == signatures[other, k]
                if agreement >= least_agreement:
                    if num_found == capacity:
                        found, agreements = (
                            np.append(found, np.empty_like(found)),
                            np.append(agreements, np.empty_like(agreements)),
                        )
                        capacity *= 2
                    found[num_found], agreements[num_found] = other, agreement
                    num_found += 1
        for _ in range(min(num_found, most_compared)):
            best = 0
            for f in range(1, num_found):
                if agreements[f] > agreements[best] or agreements[f] == agreements[best] and found[f] < found[best]:
                    best = f
            agreements[best] = -1
            other = found[best]
            compared += 1
            exact = jaccard(
                grams[gram_offsets[d] : gram_offsets[d + 1]], grams[gram_offsets[other] : gram_offsets[other + 1]]
            )
            if exact >= threshold:
                survivor[d], similarity[d] = other, exact
                break
        if survivor[d] < 0:
            for b in range(num_bands):
                if buckets[d, b] >= 0:
                    members[fill[buckets[d, b]]] = d
                    fill[buckets[d, b]] += 1
    return compared
