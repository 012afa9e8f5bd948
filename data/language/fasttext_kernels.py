"""Kernels of a fastText classifier: which rows of its matrix a word has, and which label a mean of rows stands for."""

from typing import NamedTuple

import numba
import numpy as np

from data.text.inner import inner
from data.text.machine import fetch, ones

PROBABILITY_FLOOR = np.float32(1e-5)  # fastText adds it to a probability before it takes the logarithm
COARSE = 3  # 2**COARSE buckets share a bit of a table that is small enough for the fastest memory
LEAF = -1
NONE = -1

_FNV_START = np.uint32(2166136261)
_FNV_PRIME = np.uint32(16777619)
_LABEL_PREFIX = np.frombuffer(b"__label__", np.uint8)


class Tables(NamedTuple):
    """A classifier as the kernels take it.

    slots: int64[power of two], open addressing by `hash_bytes`: number of a word << 32 | its hash, or NONE. word_bytes,
    word_offsets: uint8, int64[num_words + 1]. kept: uint64, bit b % 64 of element b // 64 says whether bucket b has a
    row; kept_before: int64, how many buckets below that element have one; coarse: uint64, bit b says whether one of the
    buckets from b << COARSE on has one. rows: flat float32, of `dimension` elements each, a multiple of BLOCK; end_row
    is that of the end of a line. inverse, shift: hash * inverse >> shift is hash // num_buckets, or one less. least,
    most: characters of an n-gram. left, right, output: as in FastTextModel, output padded as the rows are.
    """

    slots: np.ndarray
    word_bytes: np.ndarray
    word_offsets: np.ndarray
    coarse: np.ndarray
    kept: np.ndarray
    kept_before: np.ndarray
    rows: np.ndarray
    dimension: int
    end_row: int
    num_buckets: int
    inverse: np.uint64
    shift: np.uint64
    least: int
    most: int
    left: np.ndarray
    right: np.ndarray
    output: np.ndarray


@numba.njit(nogil=True, cache=True)
def hash_bytes(values: np.ndarray, begin: int, end: int) -> np.uint32:
    """FNV-1a of 32 bits as fastText has it, which takes bytes for signed numbers."""
    h = _FNV_START
    for i in range(begin, end):
        h = np.uint32((h ^ np.uint32(np.int32(np.int8(values[i])))) * _FNV_PRIME)
    return h


@inner
def row_of_word(
    values: np.ndarray, begin: int, end: int, slots: np.ndarray, word_bytes: np.ndarray, word_offsets: np.ndarray
) -> int:
    mask = len(slots) - 1
    h = np.int64(hash_bytes(values, begin, end))
    place = h & mask
    while slots[place] != NONE:
        if slots[place] & 0xFFFFFFFF == h:
            word = slots[place] >> 32
            first = word_offsets[word]
            k = 0
            while k < end - begin and first + k < word_offsets[word + 1] and word_bytes[first + k] == values[begin + k]:
                k += 1
            if k == end - begin and first + k == word_offsets[word + 1]:
                return word
        place = (place + 1) & mask
    return NONE


@inner
def is_label(values: np.ndarray, begin: int, end: int) -> bool:
    same = end - begin >= len(_LABEL_PREFIX)
    for k in range(min(end - begin, len(_LABEL_PREFIX))):
        same &= values[begin + k] == _LABEL_PREFIX[k]
    return same


@inner
def hash_ngrams(
    values: np.ndarray,
    begin: int,
    end: int,
    least: int,
    most: int,
    marked: np.ndarray,
    starts: np.ndarray,
    out: np.ndarray,
) -> int:
    """Writes the hashes of a word's n-grams to out: uint32; returns their number. A single "<" or ">" is none.

    marked: uint8, as long as the word and two more; starts: int64, one more still.
    """
    length = end - begin + 2
    marked[0], marked[length - 1] = 60, 62
    is_ascii = True
    for k in range(end - begin):
        byte = values[begin + k]
        marked[k + 1] = byte
        is_ascii &= byte < 128
    m = 0
    if is_ascii:
        for i in range(length):
            h = _FNV_START
            for n in range(min(most, length - i)):
                h = np.uint32((h ^ np.uint32(marked[i + n])) * _FNV_PRIME)
                out[m] = h
                m += n + 1 >= least and (n > 0 or 0 < i < length - 1)
        return m
    num_characters = 0
    for k in range(length):
        starts[num_characters] = k
        num_characters += marked[k] & 0xC0 != 0x80
    starts[num_characters] = length
    for i in range(num_characters):
        h = _FNV_START
        for n in range(min(most, num_characters - i)):
            for k in range(starts[i + n], starts[i + n + 1]):
                h = np.uint32((h ^ np.uint32(np.int32(np.int8(marked[k])))) * _FNV_PRIME)
            out[m] = h
            m += n + 1 >= least and (n > 0 or 0 < i < num_characters - 1)
    return m


@numba.njit(nogil=True, cache=True)
def kept_buckets(
    hashes: np.ndarray,
    n: int,
    coarse: np.ndarray,
    num_buckets: int,
    inverse: np.uint64,
    shift: np.uint64,
    out: np.ndarray,
) -> np.int64:
    """Writes to out the buckets hash % num_buckets that may have a row: int64; returns their number."""
    m = np.int64(0)
    for k in range(n):
        h = np.uint64(hashes[k])
        bucket = np.int64(h) - np.int64((h * inverse) >> shift) * num_buckets  # the quotient may be one too small
        bucket -= num_buckets * (bucket >= num_buckets)
        # Which n-grams have a row cannot be foreseen by a processor, so there is no branch here.
        out[m] = bucket
        m += np.int64(coarse[bucket >> COARSE + 6] >> np.uint64(bucket >> COARSE & 63) & np.uint64(1))
    return m


@inner
def rows_of(
    buckets: np.ndarray,
    n: int | np.int64,
    kept: np.ndarray,
    kept_before: np.ndarray,
    first_row: int,
    rows: np.ndarray,
    dimension: int,
) -> np.int64:
    """Replaces the buckets by the rows of those that have one; returns the number of these, which are asked for."""
    m = np.int64(0)
    for k in range(n):
        element = buckets[k] >> 6
        bits = kept[element] >> np.uint64(buckets[k] & 63)
        below = np.int64(ones(kept[element]) - ones(bits))
        buckets[m] = first_row + kept_before[element] + below
        fetch(rows, buckets[m] * dimension)
        m += np.int64(bits & np.uint64(1))
    return m


@inner
def best_label(
    mean: np.ndarray, output: np.ndarray, left: np.ndarray, right: np.ndarray, stack: np.ndarray, scores: np.ndarray
) -> tuple[int, np.floating]:
    """(label, its probability). stack: int32, scores: float32, of one element more than there are labels."""
    num_labels = len(output)
    best, best_score = 0, np.float32(-1)
    stack[0], scores[0] = 2 * num_labels - 2, np.float32(1)
    depth = 1
    while depth:
        depth -= 1
        node, score = stack[depth], scores[depth]
        if score < best_score:
            continue
        if left[node] == LEAF:
            best, best_score = node, score
            continue
        value = np.float32(0)
        for k in range(output.shape[1]):
            value += mean[k] * output[node - num_labels, k]
        to_right = np.float32(1) / (np.float32(1) + np.exp(-value))
        left_score = score * (np.float32(1) - to_right + PROBABILITY_FLOOR)
        right_score = score * (to_right + PROBABILITY_FLOOR)
        # The likelier child is looked at first, so that the other one rarely is.
        if left_score > right_score:
            stack[depth], scores[depth] = right[node], right_score
            stack[depth + 1], scores[depth + 1] = left[node], left_score
        else:
            stack[depth], scores[depth] = left[node], left_score
            stack[depth + 1], scores[depth + 1] = right[node], right_score
        depth += 2
    return best, min(best_score, np.float32(1))
