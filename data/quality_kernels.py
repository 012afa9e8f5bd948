"""Kernels that measure a text: one kernel for its words, one for its lines, one for its repetition. What each measure
means is in data/quality.py.

Here a word is a run of bytes that are not ASCII white space; its length is in characters, of which a Hangul syllable
counts as two.
"""

import numba
import numpy as np

from data.words import character_class, decode, longest

_PRIME = np.uint64(0x100000001B3)
_START = np.uint64(0xCBF29CE484222325)
_MIX = np.uint64(0x9E3779B97F4A7C15)
ELLIPSIS = 0x2026
BULLETS = (0x2D, 0x2A, 0x2B, 0x2022, 0x25CF, 0x25E6, 0x25AA, 0x2023)
TERMINALS = (0x2E, 0x21, 0x3F, 0x22, 0x27, 0x201D, 0x2019, 0x2026, 0x3A, 0x061F, 0x06D4, 0x0964, 0x3002, 0xFF01, 0xFF1F)
SHORT_LINE_CHARACTERS = 30


@numba.njit(nogil=True, cache=True)
def _is_space(byte: int) -> bool:
    return byte == 32 or 9 <= byte <= 13


@numba.njit(nogil=True, cache=True)
def _is_letter(c: int) -> bool:
    return 65 <= c <= 90 or 97 <= c <= 122 or c >= 128 and character_class(c) != 0


@numba.njit(nogil=True, cache=True)
def _is_spaceless(c: int) -> bool:
    """Letters of scripts that put no spaces between words: Han, Kana, Bopomofo; Thai, Lao, Tibetan, Myanmar, Khmer."""
    return (
        0x0E00 <= c < 0x1000
        or 0x1000 <= c < 0x10A0
        or 0x1780 <= c < 0x1800
        or 0x3005 <= c < 0x3130
        or 0x31A0 <= c < 0xA000
        or 0xF900 <= c < 0xFB00
        or c >= 0x20000
    )


@numba.njit(nogil=True, cache=True)
def words(values: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """out: int64[d, 8]: words, their characters, words with a letter, `#` marks, ellipses, characters that are not
    white space, letters and digits, letters of scripts without word spaces."""
    for d in range(len(offsets) - 1):
        num_words = word_characters = alphabetic = hashes = ellipses = characters = alphanumeric = spaceless = 0
        inside = has_letter = False
        dots = 0
        i, end = offsets[d], offsets[d + 1]
        while i < end:
            c, length = decode(values, i)
            i += length
            if c < 128 and _is_space(c):
                alphabetic += inside and has_letter
                inside = has_letter = False
                dots = 0
                continue
            if not inside:
                num_words += 1
                inside = True
            characters += 1
            word_characters += 2 if 0xAC00 <= c < 0xD7A4 else 1
            if _is_letter(c):
                has_letter = True
                alphanumeric += 1
                spaceless += _is_spaceless(c)
            elif 48 <= c <= 57:
                alphanumeric += 1
            hashes += c == 35
            ellipses += c == ELLIPSIS
            dots = dots + 1 if c == 46 else 0
            if dots == 3:
                ellipses += 1
                dots = 0
        alphabetic += inside and has_letter
        out[d, 0], out[d, 1], out[d, 2], out[d, 3] = num_words, word_characters, alphabetic, hashes
        out[d, 4], out[d, 5], out[d, 6], out[d, 7] = ellipses, characters, alphanumeric, spaceless


@numba.njit(nogil=True, cache=True)
def lines(values: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """out: int64[d, 9]: lines that are not blank, their characters (white space at the ends left off), characters of
    the longest one; lines that end in terminal punctuation, that end in an ellipsis, that begin with a bullet, of at
    most 30 characters; lines that repeat an earlier one, and their characters."""
    for d in range(len(offsets) - 1):
        row = out[d]
        row[:] = 0
        seen = np.zeros(64, np.uint64)
        num_seen = 0
        i, end = offsets[d], offsets[d + 1]
        while i < end:
            while i < end and _is_space(values[i]):
                i += 1
            if i >= end:
                break
            first, _ = decode(values, i)
            h = trimmed = _START
            characters = pending = 0
            last = before = earlier = 0
            while i < end and values[i] != 10:
                c, width = decode(values, i)
                if c < 128 and _is_space(c):
                    pending += 1
                    h = h * _PRIME
                else:
                    characters += pending + 1
                    if pending:
                        last = 32
                    pending = 0
                    earlier, before, last = before, last, c
                    for k in range(width):
                        h = (h ^ np.uint64(values[i + k])) * _PRIME
                    trimmed = h
                i += width
            key = (trimmed ^ (trimmed >> np.uint64(32))) | np.uint64(1)
            row[0] += 1
            row[1] += characters
            row[2] = max(row[2], characters)
            row[3] += last in TERMINALS
            row[4] += last == ELLIPSIS or last == 46 and before == 46 and earlier == 46
            row[5] += first in BULLETS
            row[6] += characters <= SHORT_LINE_CHARACTERS
            if 2 * (num_seen + 1) > len(seen):
                old = seen
                seen = np.zeros(2 * len(old), np.uint64)
                for present in old:
                    if present != 0:
                        _insert(seen, present)
            if _insert(seen, key):
                num_seen += 1
            else:
                row[7] += 1
                row[8] += characters


@numba.njit(nogil=True, cache=True)
def _insert(table: np.ndarray, key: np.uint64) -> bool:
    """Whether the nonzero key is new."""
    mask = np.uint64(len(table) - 1)
    place = (key * _MIX) >> np.uint64(32) & mask
    while table[place] != 0:
        if table[place] == key:
            return False
        place = (place + np.uint64(1)) & mask
    table[place] = key
    return True


@numba.njit(nogil=True, cache=True)
def _split(values: np.ndarray, begin: int, end: int, hashes: np.ndarray, sizes: np.ndarray) -> int:
    """The words of values[begin:end]: their hashes (uint64) and bytes (int64); returns their number."""
    n = 0
    i = begin
    while True:
        while i < end and _is_space(values[i]):
            i += 1
        if i >= end:
            return n
        h = _START
        first = i
        while i < end and not _is_space(values[i]):
            h = (h ^ np.uint64(values[i])) * _PRIME
            i += 1
        hashes[n] = (h ^ (h >> np.uint64(32))) * _MIX
        sizes[n] = i - first
        n += 1


@numba.njit(nogil=True, cache=True)
def repetition(values: np.ndarray, offsets: np.ndarray, top: np.ndarray, repeated: np.ndarray, out: np.ndarray) -> None:
    """out: float64[d, len(top) + len(repeated)], shares of the bytes of all words.

    For each n of `top` (int64): bytes of the n-gram that covers most, times its occurrences, of which there are at
    least two; 0 if there is none. For each n of `repeated` (int64): bytes of words in n-grams that occurred before,
    each word once.
    """
    room = longest(offsets) // 2 + 1
    hashes, sizes = np.empty(room, np.uint64), np.empty(room, np.int64)
    table_size = 16
    while table_size < 2 * room:
        table_size *= 2
    keys, counts, stamps = (
        np.empty(table_size, np.uint64),
        np.empty(table_size, np.int64),
        np.zeros(table_size, np.int64),
    )
    stamp = 0
    for d in range(len(offsets) - 1):
        n_words = _split(values, offsets[d], offsets[d + 1], hashes, sizes)
        total = sizes[:n_words].sum()
        mask = 15
        while mask < 2 * n_words:
            mask = 2 * mask + 1
        for column in range(len(top) + len(repeated)):
            n = top[column] if column < len(top) else repeated[column - len(top)]
            stamp += 1
            best = covered = behind = 0
            for w in range(n_words - n + 1):
                h = np.uint64(n)
                size = 0
                for k in range(n):
                    h = (h ^ hashes[w + k]) * _PRIME
                    h ^= h >> np.uint64(29)
                    size += sizes[w + k]
                place = np.int64((h * _MIX) >> np.uint64(32)) & mask
                while stamps[place] == stamp and keys[place] != h:
                    place = (place + 1) & mask
                if stamps[place] != stamp:
                    stamps[place], keys[place], counts[place] = stamp, h, 1
                    continue
                counts[place] += 1
                best = max(best, counts[place] * size)
                for k in range(max(w, behind), w + n):
                    covered += sizes[k]
                behind = max(behind, w + n)
            amount = best if column < len(top) else covered
            out[d, column] = amount / total if total else 0.0
