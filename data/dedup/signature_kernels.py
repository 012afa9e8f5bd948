"""Kernels that sign documents: the fingerprint of a text, MinHash values of its n-grams, keys of their bands.

The MinHash values are those of Dahlgaard, Knudsen and Thorup (Fast Similarity Sketching, 2017): each n-gram falls
into one of k bins with a value, and a bin keeps the least; bins that are still empty are filled in further rounds
with other hashes. So a value costs one hash of an n-gram for all bins, where k hash functions would cost k, and a
pair of texts agrees in a bin with a probability that is their Jaccard similarity, however short they are.
"""

import numba
import numpy as np

from data.text.block_bytes import BLOCK_BYTES, copy_block, space_mask
from data.text.characters import is_space
from data.text.inner import inner
from data.text.machine import folded_product, load8, trailing_zeros
from data.text.words import longest, ngram_hashes

EMPTY = np.uint32(0xFFFFFFFF)
FEW_BINS, MANY_NGRAMS = 4, 64  # when it is better to go through the n-grams once for each bin

_ONE, _32, _63 = np.uint64(1), np.uint64(32), np.uint64(63)
_KEY_1, _KEY_2 = np.uint64(0xE7037ED1A0B428DB), np.uint64(0x8EBC6AF09C88C6E3)
_KEY_3, _KEY_4 = np.uint64(0x589965CC75374CC3), np.uint64(0x1D8E4E27C47D124F)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_ROUND, _ROUND_KEY = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xA0761D6478BD642F)


@inner
def _last_space_mask(values: np.ndarray, i: int) -> np.uint64:
    """`space_mask` of values[i:], of fewer than 64 bytes."""
    space = np.uint64(0)
    for k in range(len(values) - i):
        if is_space(values[i + k]):
            space |= _ONE << np.uint64(k)
    return space


@numba.njit(nogil=True, cache=True)
def single_spaced(values: np.ndarray, begin: int, end: int, out: np.ndarray) -> int:
    """Writes values[begin:end] with runs of ASCII white space as one space, and none at either end, to `out`; returns
    the number of bytes. out: uint8, of at least end - begin + 64 elements."""
    o = 0
    after_space = _ONE
    for i in range(begin, end, BLOCK_BYTES):
        whole = i + BLOCK_BYTES <= len(values)
        space = space_mask(values, i) if whole else _last_space_mask(values, i)
        kept = ~(space & (space << _ONE | after_space))
        after_space = space >> _63
        if end - i < BLOCK_BYTES:
            kept &= (_ONE << np.uint64(end - i)) - _ONE
        elif kept == ~np.uint64(0):
            copy_block(out, o, values, i)
            o += BLOCK_BYTES
            continue
        while kept != 0:
            first = trailing_zeros(kept)
            run = trailing_zeros(~(kept >> np.uint64(first)))
            if i + first + BLOCK_BYTES <= len(values):
                copy_block(out, o, values, i + first)
            else:
                for k in range(i + first, i + first + run):
                    out[o + k - i - first] = 32 if is_space(values[k]) else values[k]
            o += run
            if first + run == BLOCK_BYTES:
                break
            kept = kept >> np.uint64(first + run) << np.uint64(first + run)
    return o - 1 if o > 0 and out[o - 1] == 32 else o


@numba.njit(nogil=True, cache=True)
def fingerprint(text: np.ndarray, num_bytes: int) -> tuple[np.uint64, np.uint64]:
    """128 bits of text[:num_bytes]. Writes zeros behind it: text has at least 16 elements more."""
    for k in range(16):
        text[num_bytes + k] = 0
    a, b = _KEY_4 ^ np.uint64(num_bytes), _KEY_3
    for i in range(0, num_bytes, 16):
        x, y = load8(text, i), load8(text, i + 8)
        a = folded_product(x ^ _KEY_1, y ^ a)
        b = folded_product(x ^ b, y ^ _KEY_2)
    return folded_product(a ^ _KEY_3, b ^ _KEY_1), folded_product(b ^ _KEY_4, a ^ _KEY_2)


@inner
def _least_in(grams: np.ndarray, count: int, salt: np.uint64, k: np.uint64, wanted: np.uint64) -> np.uint64:
    """The least value that falls into one bin in a round; a loop that compilers turn into vector instructions."""
    least = np.uint64(EMPTY)
    for g in range(count):
        gram = (grams[g] ^ salt) * _ROUND_KEY
        gram ^= gram >> _32
        least = min(least, gram & _LOW_HALF if (gram >> _32) * k >> _32 == wanted else np.uint64(EMPTY))
    return least


@inner
def _num_open(bins: np.ndarray) -> int:
    num_open = 0
    for place in range(len(bins)):
        num_open += bins[place] == EMPTY
    return num_open


@inner
def _fill_open_bins(grams: np.ndarray, count: int, bins: np.ndarray) -> None:
    """The rounds behind the first one."""
    k = np.uint64(len(bins))
    round_of = np.zeros(len(bins), np.int64)
    num_open = _num_open(bins)
    number = 1
    while num_open > 0 and number < len(bins):
        salt = np.uint64(number) * _ROUND
        if num_open <= FEW_BINS and count >= MANY_NGRAMS:
            for place in range(len(bins)):
                if bins[place] == EMPTY:
                    bins[place] = np.uint32(_least_in(grams, count, salt, k, np.uint64(place)))
                    num_open -= bins[place] != EMPTY
        else:
            for g in range(count):
                gram = (grams[g] ^ salt) * _ROUND_KEY
                gram ^= gram >> _32
                place, value = (gram >> _32) * k >> _32, np.uint32(gram & _LOW_HALF)
                if bins[place] == EMPTY:
                    bins[place] = value
                    round_of[place] = number
                    num_open -= value != EMPTY
                elif round_of[place] == number:
                    bins[place] = min(bins[place], value)
        number += 1
    for place in range(len(bins)):
        if bins[place] == EMPTY:  # the least of all n-grams, so that there is an end
            salt = np.uint64(len(bins) + place) * _ROUND
            bins[place] = np.uint32(_least_in(grams, count, salt, _ONE, np.uint64(0)))


@numba.njit(nogil=True, cache=True)
def fill_bins(grams: np.ndarray, count: int, bins: np.ndarray) -> None:
    """bins: uint32[k], set to the MinHash values of grams[:count], uint64; to EMPTY if there are none."""
    k = np.uint64(len(bins))
    for place in range(len(bins)):
        bins[place] = EMPTY
    for g in range(count):
        gram = grams[g]
        place, value = (gram >> _32) * k >> _32, np.uint32(gram & _LOW_HALF)
        bins[place] = min(bins[place], value)
    if count > 0 and _num_open(bins) > 0:
        _fill_open_bins(grams, count, bins)


@numba.njit(nogil=True, cache=True)
def sign_texts(
    values: np.ndarray,
    offsets: np.ndarray,
    n: int,
    rows: int,
    prints: np.ndarray,
    num_bytes: np.ndarray,
    num_grams: np.ndarray,
    bands: np.ndarray,
    sketches: np.ndarray,
) -> None:
    """prints: uint64[d, 2] of the single-spaced text; num_bytes: int64[d] of it. num_grams: int32[d]. bands:
    uint64[d, b], one hash of `rows` MinHash values each. sketches: uint8[d, b * rows], the lowest byte of each
    value."""
    num_bands, num_bins = bands.shape[1], sketches.shape[1]
    text = np.empty(longest(offsets) + BLOCK_BYTES, np.uint8)
    grams = np.empty(longest(offsets) // 2 + 1, np.uint64)
    bins = np.empty(num_bins, np.uint32)
    for d in range(len(offsets) - 1):
        num_bytes[d] = single_spaced(values, offsets[d], offsets[d + 1], text)
        prints[d, 0], prints[d, 1] = fingerprint(text, num_bytes[d])
        _, count = ngram_hashes(values, offsets[d], offsets[d + 1], n, grams)
        num_grams[d] = count
        fill_bins(grams, count, bins)
        for b in range(num_bands):
            key = np.uint64(b + 1)
            for r in range(rows):
                key = folded_product(key ^ np.uint64(bins[b * rows + r]), _KEY_1)
            bands[d, b] = key
        for k in range(num_bins):
            sketches[d, k] = np.uint8(bins[k])
