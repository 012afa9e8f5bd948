"""Predicting with a fastText classifier over the buffer of a column of texts.

The value of a text is the mean of the rows of its words and of their character n-grams, "<" and ">" around each word,
and of the end of the line. Words come again and again, so the sum of a word's rows is kept in a table under the word's
own bytes: it is the same sum whether it was there or not, and a text has the same answer wherever it stands.
"""

import numba
import numpy as np

from data.language.fasttext_kernels import (
    NONE,
    Tables,
    best_label,
    hash_ngrams,
    is_label,
    kept_buckets,
    row_of_word,
    rows_of,
)
from data.language.matrix_rows import add
from data.text.inner import inner
from data.text.machine import fetch
from data.text.machine import load8 as load

CHUNK = 64  # words that are looked for at a time
KEYS = 4  # words of at most 8 * KEYS bytes are kept

_MIX = np.uint64(0x9E3779B97F4A7C15)


@inner
def _is_separator(byte: int) -> bool:
    return byte == 32 or 9 <= byte <= 13 or byte == 0


@inner
def _beginning(values: np.ndarray, begin: int, end: int, num_characters: int) -> int:
    """Where the first characters of values[begin:end] end."""
    if end - begin <= num_characters:
        return end
    left = num_characters
    for i in range(begin, end):
        if values[i] & 0xC0 != 0x80:
            if left == 0:
                return i
            left -= 1
    return end


@inner
def _pack(values: np.ndarray, begin: int, end: int, out: np.ndarray, first: int) -> np.uint64:
    """Writes the bytes of a word of at most 8 * KEYS bytes to out[first : first + KEYS], zeros behind them; returns a
    hash of them."""
    mixed = np.uint64(0)
    for part in range(KEYS):
        place = begin + 8 * part
        rest = end - place
        packed = np.uint64(0)
        if rest >= 8:
            packed = load(values, place)
        elif rest > 0 and place + 8 <= len(values):
            packed = load(values, place) & ((np.uint64(1) << np.uint64(8 * rest)) - np.uint64(1))
        else:
            for k in range(rest):
                packed |= np.uint64(values[place + k]) << np.uint64(8 * k)
        out[first + part] = packed
        mixed = (mixed ^ packed) * _MIX
        mixed ^= mixed >> np.uint64(32)
    return mixed


@inner
def _next_words(
    values: np.ndarray,
    i: int,
    end: int,
    keys: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    places: np.ndarray,
    packed: np.ndarray,
) -> tuple[int, int]:
    """(number of the next words of values[i:end], at most CHUNK, position behind them). Of each word: begins, ends:
    int64; places: int64, where its sum is kept, the last place if it is too long; packed: uint64[KEYS], its key."""
    num_kept_words = len(counts) - 1
    dimension = len(sums) // len(counts)
    mask = np.uint64(num_kept_words - 1)
    n = 0
    while n < CHUNK:
        while i < end and _is_separator(values[i]):
            i += 1
        if i >= end:
            break
        begins[n] = i
        while i < end and not _is_separator(values[i]):
            i += 1
        ends[n], places[n] = i, num_kept_words
        if i - begins[n] <= 8 * KEYS:
            places[n] = np.int64(_pack(values, begins[n], i, packed, n * KEYS) & mask)
            # Most sums are not near, so they are asked for before they are needed.
            fetch(keys, places[n] * KEYS)
            fetch(sums, places[n] * dimension)
            fetch(counts, places[n])
        n += 1
    return n, i


@numba.njit(nogil=True, cache=True)
def predict(
    values: np.ndarray,
    offsets: np.ndarray,
    num_characters: int,
    tables: Tables,
    num_kept_words: int,
    labels: np.ndarray,
    confidences: np.ndarray,
) -> None:
    """Of each text, by its first characters: labels int32[n], NONE for a text without a word; confidences float32[n],
    the probability of that label. num_kept_words: a power of two, how many words' sums are kept at a time."""
    # Taken apart once: each time that a tuple gives an array away, its references are counted.
    slots, word_bytes, word_offsets = tables.slots, tables.word_bytes, tables.word_offsets
    coarse, kept, kept_before = tables.coarse, tables.kept, tables.kept_before
    rows, dimension = tables.rows, tables.dimension
    output, left, right, end_row = tables.output, tables.left, tables.right, tables.end_row
    least, most = tables.least, tables.most
    num_buckets, inverse, shift = tables.num_buckets, tables.inverse, tables.shift
    num_words = len(word_offsets) - 1
    longest = 0
    for d in range(len(offsets) - 1):
        longest = max(longest, min(offsets[d + 1] - offsets[d], 4 * num_characters))
    marked, starts = np.empty(longest + 2, np.uint8), np.empty(longest + 3, np.int64)
    hashes, buckets = np.empty((longest + 2) * most + 1, np.uint32), np.empty((longest + 2) * most + 1, np.int64)
    keys = np.zeros((num_kept_words + 1) * KEYS, np.uint64)  # no word is all zero
    sums = np.zeros((num_kept_words + 1) * dimension, np.float32)  # the last row is for the words that are not kept
    counts = np.zeros(num_kept_words + 1, np.int64)
    stack, scores = np.empty(len(output) + 1, np.int32), np.empty(len(output) + 1, np.float32)
    total = np.empty(dimension, np.float32)
    begins, ends, places = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64)
    packed = np.empty(CHUNK * KEYS, np.uint64)
    for d in range(len(offsets) - 1):
        i = offsets[d]
        end = _beginning(values, i, offsets[d + 1], num_characters)
        num_rows = 1
        total[:] = 0
        add(total, 0, rows, end_row, dimension)
        has_word = False
        while i < end:
            n, i = _next_words(values, i, end, keys, sums, counts, begins, ends, places, packed)
            has_word |= n > 0
            for w in range(n):
                slot = places[w]
                known = slot < num_kept_words
                for part in range(KEYS):
                    known &= keys[slot * KEYS + part] == packed[w * KEYS + part]
                    keys[slot * KEYS + part] = packed[w * KEYS + part]
                if not known:
                    for k in range(slot * dimension, (slot + 1) * dimension):
                        sums[k] = 0
                    counts[slot] = 0
                    row = row_of_word(values, begins[w], ends[w], slots, word_bytes, word_offsets)
                    if row != NONE:
                        add(sums, slot, rows, row, dimension)
                        counts[slot] = 1
                    # Of the end of a line fastText takes no n-grams, and what looks like an answer it leaves out.
                    if row != end_row and not is_label(values, begins[w], ends[w]):
                        num_hashes = hash_ngrams(values, begins[w], ends[w], least, most, marked, starts, hashes)
                        num_maybe = kept_buckets(hashes, num_hashes, coarse, num_buckets, inverse, shift, buckets)
                        num_hits = rows_of(buckets, num_maybe, kept, kept_before, num_words, rows, dimension)
                        for k in range(num_hits):
                            add(sums, slot, rows, buckets[k], dimension)
                        counts[slot] += num_hits
                num_rows += counts[slot]
                add(total, 0, sums, slot, dimension)
        if not has_word:
            labels[d], confidences[d] = NONE, 0
            continue
        for k in range(dimension):
            total[k] *= np.float32(1.0 / num_rows)
        labels[d], confidences[d] = best_label(total, output, left, right, stack, scores)
