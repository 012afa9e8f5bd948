"""Kernels of decontamination: which runs of words of a text are runs of words of judged text.

A text is hashed once, into its runs of s words (`data.text.words`). A longer run of L words is known by the runs of s
words that cover it, at words 0, s, 2s, ... and L - s, so no other length costs another pass over the bytes. As long as
the run of s words at a place is not one of judged text, which a table of bits in cache tells, nothing more is looked
up.
"""

import numba
import numpy as np

from data.text.inner import inner
from data.text.words import ngram_hashes

_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_ONE, _SIX, _LOW_SIX = np.uint64(1), np.uint64(6), np.uint64(63)


@numba.njit(nogil=True, cache=True)
def hash_runs(
    values: np.ndarray, offsets: np.ndarray, num_words: int, hashes: np.ndarray, starts: np.ndarray, totals: np.ndarray
) -> None:
    """The hash of each run of `num_words` words of each text.

    hashes: uint64, of at least (offsets[-1] - offsets[0]) // 2 + n elements; those of text d become
    hashes[starts[d]:starts[d + 1]]. starts: int64[n + 1]. totals: int64[n], the words of each text.
    """
    starts[0] = 0
    for d in range(len(offsets) - 1):
        words, runs = ngram_hashes(values, offsets[d], offsets[d + 1], num_words, hashes[starts[d] :])
        totals[d] = words
        starts[d + 1] = starts[d] + runs


@numba.njit(nogil=True, cache=True)
def longer_run(hashes: np.ndarray, i: int, num_words: int, length: int) -> np.uint64:
    """Hash of the run of `length` >= num_words words from word i on. hashes: of the runs of `num_words` words."""
    h = hashes[i] + np.uint64(length)
    k = num_words
    while k < length:
        h = (h ^ (h >> np.uint64(29))) * _MIX + hashes[i + min(k, length - num_words)]
        k += num_words
    h = (h ^ (h >> np.uint64(32))) * _MIX_2
    return h ^ (h >> np.uint64(29))


@numba.njit(nogil=True, cache=True)
def longer_runs(hashes: np.ndarray, num_words: int, length: int) -> np.ndarray:
    """uint64: the hash of every run of `length` words of one text."""
    out = np.empty(max(0, len(hashes) + num_words - length), np.uint64)
    for i in range(len(out)):
        out[i] = longer_run(hashes, i, num_words, length)
    return out


@numba.njit(nogil=True, cache=True)
def bit_table(hashes: np.ndarray, num_bits: int) -> np.ndarray:
    """uint64[num_bits / 64], a power of two of bits: one bit set for each hash."""
    table = np.zeros(num_bits >> 6, np.uint64)
    mask = np.uint64(num_bits - 1)
    for h in hashes:
        bit = (h * _MIX) >> np.uint64(20) & mask
        table[bit >> _SIX] |= _ONE << (bit & _LOW_SIX)
    return table


@inner
def _may_be_in(table: np.ndarray, h: np.uint64) -> bool:
    bit = (h * _MIX) >> np.uint64(20) & (np.uint64(len(table)) * np.uint64(64) - _ONE)
    return table[bit >> _SIX] >> (bit & _LOW_SIX) & _ONE != 0


@numba.njit(nogil=True, cache=True)
def place_table(keys: np.ndarray, size: int) -> np.ndarray:
    """int32[size], a power of two above the number of distinct keys: 1 + the place of a key in `keys`, or 0."""
    table = np.zeros(size, np.int32)
    for k in range(len(keys)):
        place = np.int64(keys[k] & np.uint64(size - 1))
        while table[place] != 0:
            place = (place + 1) & (size - 1)
        table[place] = k + 1
    return table


@inner
def _find(keys: np.ndarray, table: np.ndarray, h: np.uint64) -> int:
    """The place of h in `keys`, or -1."""
    place = np.int64(h & np.uint64(len(table) - 1))
    while table[place] != 0:
        if keys[table[place] - 1] == h:
            return table[place] - 1
        place = (place + 1) & (len(table) - 1)
    return -1


@numba.njit(nogil=True, cache=True)
def find_runs(
    hashes: np.ndarray,
    starts: np.ndarray,
    num_words: int,
    lengths: np.ndarray,
    bits: np.ndarray,
    keys: np.ndarray,
    table: np.ndarray,
    matches: np.ndarray,
) -> np.ndarray:
    """int64[m, 2]: (text, place in `keys`) of each run of words that is in `keys`, as often as it is there.

    lengths: int64, of the runs that `keys` holds; the last one is that of the n-grams, whose number in each text goes
    to matches: int64[n]. bits: of `bit_table`, all runs of `num_words` words that begin or end one of `keys`. table:
    of `place_table`.
    """
    found = np.empty((64, 2), np.int64)
    count = 0
    for d in range(len(starts) - 1):
        matches[d] = 0
        for i in range(starts[d], starts[d + 1]):
            if not _may_be_in(bits, hashes[i]):
                continue
            for k in range(len(lengths)):
                last = i + lengths[k] - num_words
                if last >= starts[d + 1] or not _may_be_in(bits, hashes[last]):
                    continue
                place = _find(keys, table, longer_run(hashes, i, num_words, lengths[k]))
                if place < 0:
                    continue
                if count == len(found):
                    found = _twice_as_long(found)
                found[count, 0], found[count, 1] = d, place
                count += 1
                matches[d] += k == len(lengths) - 1
    return found[:count]


@inner
def _twice_as_long(found: np.ndarray) -> np.ndarray:
    more = np.empty((2 * len(found), 2), np.int64)
    for k in range(len(found)):
        more[k, 0], more[k, 1] = found[k, 0], found[k, 1]
    return more
