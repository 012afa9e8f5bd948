"""What a word is, for everything that compares texts: numba kernels over UTF-8 bytes.

A word is a run of letters, digits and marks, with ASCII letters in lower case. In scripts that are written without
spaces between words, each character is a word, together with the vowel signs and accents that follow it; everything
else separates words (data/text/characters.py has the classes). Case is folded in ASCII only, nothing is normalised, and
digits stay as they are: "2 + 2 = 4" and "2 + 3 = 5" differ.

The bytes are classified 64 at a time into masks, and words are what lies between the edges in the masks. A word of at
most eight bytes is one number. Words and n-grams are known by 64-bit hashes from here on.
"""

import numba
import numpy as np

from data.text.block_bytes import BLOCK_BYTES, letter_leads, word_masks
from data.text.characters import MARK, SEPARATOR, SINGLE, character_class, decode
from data.text.inner import inner
from data.text.machine import folded_product, load8, lower_case, trailing_zeros

_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)
_62, _63 = np.uint64(62), np.uint64(63)
_WORD_KEY, _LONG_KEY = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xA0761D6478BD642F)
_GRAM_KEY = np.uint64(0xBF58476D1CE4E5B9)
_BASE = np.uint64(0xD6E8FEB86659FD93)
_LOW_BYTES = np.array([(1 << 8 * length) - 1 for length in range(9)], np.uint64)


@inner
def _last_bytes(values: np.ndarray, i: int) -> np.uint64:
    """values[i:] as a number, of fewer than eight bytes."""
    chunk = np.uint64(0)
    for k in range(len(values) - i):
        chunk |= np.uint64(values[i + k]) << np.uint64(8 * k)
    return chunk


@inner
def _last_masks(values: np.ndarray, i: int) -> tuple[np.uint64, np.uint64]:
    """`word_masks` of values[i:], of fewer than 64 bytes."""
    word, high = np.uint64(0), np.uint64(0)
    for k in range(len(values) - i):
        c = values[i + k]
        if c >= 128:
            high |= _ONE << np.uint64(k)
        elif 48 <= c < 58 or 97 <= c | 32 < 123:
            word |= _ONE << np.uint64(k)
    return word, high


@inner
def _rare_hash(values: np.ndarray, start: int, end: int) -> np.uint64:
    """Of a word of more than eight bytes, or of one at the end of the buffer; not yet mixed."""
    h, is_long = np.uint64(end - start), end - start > 8
    while end - start > 8:
        h = folded_product(h ^ lower_case(load8(values, start)), _LONG_KEY)
        start += 8
    last = load8(values, start) if start + 8 <= len(values) else _last_bytes(values, start)
    last = lower_case(last) & _LOW_BYTES[end - start]
    return folded_product(h ^ last, _LONG_KEY) if is_long else last


@inner
def _add_characters(
    values: np.ndarray, i: int, end: int, word: np.uint64, edges: np.uint64, high: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]:
    """The characters of the block at i that are not ASCII: (word, edges) of the block, (word, edges, taken) of the
    next one.

    word: bytes of words. edges: bytes at which a word begins although one stands before it. high: bytes of characters
    that begin in this block; taken: bytes of the last one in the next block.
    """
    next_word, next_edges, taken = np.uint64(0), np.uint64(0), np.uint64(0)
    if i + BLOCK_BYTES + 4 <= end:
        two, three, single, latin, no_latin = letter_leads(values, i)
        two |= latin & ~(no_latin >> _ONE) & ~(_ONE << _63)
        two, three, single = two & high, three & high, single & high
        three |= single
        letters = two | two << _ONE | three | three << _ONE | three << _TWO
        word |= letters
        taken = two >> _63 | three >> _63 | three >> _62
        next_word = taken
        edges |= single | single << _THREE
        next_edges = single >> np.uint64(61)
        high &= ~letters
    while high != 0:
        k = trailing_zeros(high)
        c = values[i + k]
        length = 2 if c < 0xE0 else 3 if c < 0xF0 else 4
        if i + k + length > end:
            break
        at, ones = np.uint64(k), (_ONE << np.uint64(length)) - _ONE
        high &= ~(ones << at)
        behind = ones >> (_63 - at) >> _ONE
        taken |= behind
        code_point, _ = decode(values, i + k)
        kind = character_class(code_point)
        if kind == SEPARATOR:
            continue
        word |= ones << at
        next_word |= behind
        if kind == SINGLE or kind == MARK and edges >> at & _ONE != 0:
            if kind == SINGLE:
                edges |= _ONE << at
            else:
                edges &= ~(_ONE << at)
            if k + length < BLOCK_BYTES:
                edges |= _ONE << np.uint64(k + length)
            else:
                next_edges |= _ONE << np.uint64(k + length - BLOCK_BYTES)
    return word, edges, next_word, next_edges, taken


@numba.njit(nogil=True, cache=True)
def ngram_hashes(values: np.ndarray, begin: int, end: int, n: int, out: np.ndarray) -> tuple[int, int]:
    """Writes the hash of each run of n words of values[begin:end] to `out`; returns (number of words, number of
    n-grams).

    out: uint64, of at least (end - begin) // 2 + 1 elements, which is the largest number of words that fits. The hash
    of a run is mixed from a polynomial in the hashes of its words (Karp and Rabin 1987), which a new word updates.
    """
    window, slot = np.zeros(n, np.uint64), 0
    power, rolling = _ONE, np.uint64(0)
    for _ in range(n):
        power *= _BASE
    num_words, start = 0, begin
    inside = np.uint64(0)  # 1 if a word goes on across the border between two blocks
    next_word, next_edges, taken = np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(begin, end + 1, BLOCK_BYTES):  # a word that ends with the text ends in the block behind it
        word, high = word_masks(values, i) if i + BLOCK_BYTES <= len(values) else _last_masks(values, i)
        edges = np.uint64(0)
        if end - i < BLOCK_BYTES:
            rest = (_ONE << np.uint64(end - i)) - _ONE
            word &= rest
            high &= rest
        if high | next_edges != 0:
            word, edges, next_word, next_edges, taken = _add_characters(
                values, i, end, word | next_word, next_edges, high & ~taken
            )
        before = word << _ONE | inside
        starts = word & (~before | edges)
        ends = before & (~word | edges)
        if inside == 0:
            start = i + trailing_zeros(starts)
            starts &= starts - _ONE
        inside = word >> _63
        while ends != 0:
            stop = i + trailing_zeros(ends)
            ends &= ends - _ONE
            if stop - start <= 8 and start + 8 <= len(values):
                h = lower_case(load8(values, start)) & _LOW_BYTES[stop - start]
            else:
                h = _rare_hash(values, start, stop)
            h *= _WORD_KEY
            h ^= h >> np.uint64(32)
            rolling = rolling * _BASE + (h - window[slot] * power)
            window[slot] = h
            slot = slot + 1 if slot + 1 < n else 0
            num_words += 1
            if num_words >= n:
                gram = rolling * _GRAM_KEY
                out[num_words - n] = gram ^ gram >> np.uint64(32)
            start = i + trailing_zeros(starts)
            starts &= starts - _ONE
    return num_words, max(0, num_words - n + 1)


@numba.njit(nogil=True, cache=True)
def longest(offsets: np.ndarray) -> int:
    """Bytes of the longest text of a column."""
    most = 0
    for d in range(len(offsets) - 1):
        most = max(most, offsets[d + 1] - offsets[d])
    return most
