"""Kernels of decontamination: a hash set of n-grams, and which n-grams of a text are in it."""

import numba
import numpy as np

from data.words import longest, ngram_hashes

_MIX = np.uint64(0x9E3779B97F4A7C15)


@numba.njit(nogil=True, cache=True)
def build_table(grams: np.ndarray) -> np.ndarray:
    """uint64[2^k], at most half full, of nonzero hashes; 0 marks a free place."""
    size = 16
    while size < 2 * len(grams):
        size *= 2
    table = np.zeros(size, np.uint64)
    mask = np.uint64(size - 1)
    for gram in grams:
        place = (gram * _MIX) >> np.uint64(20) & mask
        while table[place] != 0 and table[place] != gram:
            place = (place + np.uint64(1)) & mask
        table[place] = gram
    return table


@numba.njit(nogil=True, cache=True)
def contains(table: np.ndarray, gram: np.uint64) -> bool:
    mask = np.uint64(len(table) - 1)
    place = (gram * _MIX) >> np.uint64(20) & mask
    while table[place] != 0:
        if table[place] == gram:
            return True
        place = (place + np.uint64(1)) & mask
    return False


@numba.njit(nogil=True, cache=True)
def count_matches(
    values: np.ndarray, offsets: np.ndarray, n: int, table: np.ndarray, matches: np.ndarray, totals: np.ndarray
) -> None:
    """matches, totals: int64[d], the n-grams of each text that are in the table, and all of them, repeated ones
    included."""
    grams = np.empty(longest(offsets) // 2 + 1, np.uint64)
    for d in range(len(offsets) - 1):
        _, count = ngram_hashes(values, offsets[d], offsets[d + 1], n, grams)
        found = 0
        for g in range(count):
            found += contains(table, grams[g])
        matches[d] = found
        totals[d] = count


@numba.njit(nogil=True, cache=True)
def matching_grams(
    values: np.ndarray, offsets: np.ndarray, n: int, table: np.ndarray, matches: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams of each text that are in the table: (int64 text, uint64 hash), as many as `count_matches` counted."""
    grams = np.empty(longest(offsets) // 2 + 1, np.uint64)
    text = np.empty(matches.sum(), np.int64)
    gram = np.empty(matches.sum(), np.uint64)
    m = 0
    for d in range(len(offsets) - 1):
        if matches[d] == 0:
            continue
        _, count = ngram_hashes(values, offsets[d], offsets[d + 1], n, grams)
        for g in range(count):
            if contains(table, grams[g]):
                text[m], gram[m] = d, grams[g]
                m += 1
    return text, gram
