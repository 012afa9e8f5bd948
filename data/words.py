"""What a word is, for everything that compares texts: numba kernels over UTF-8 bytes.

A word is a run of letters and digits, with ASCII letters in lower case; everything between words is a separator. In
scripts that are written without spaces between short words (Han, Kana) each character is a word. Case is folded in
ASCII only, and digits stay as they are: "2 + 2 = 4" and "2 + 3 = 5" differ.
"""

import numba
import numpy as np

SEPARATOR, LETTER, SINGLE = 0, 1, 2

_HASH_START = np.uint64(0xCBF29CE484222325)
_HASH_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xBF58476D1CE4E5B9)
_BASE = np.uint64(0xD6E8FEB86659FD93)


def _ascii_table() -> np.ndarray:
    """uint8[128]: the byte as part of a word, or 0 for a separator."""
    table = np.zeros(128, np.uint8)
    for character in b"0123456789abcdefghijklmnopqrstuvwxyz":
        table[character] = character
    for character in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        table[character] = character + 32
    return table


_ASCII = _ascii_table()


@numba.njit(nogil=True, cache=True)
def character_class(code_point: int) -> int:
    """SEPARATOR, LETTER or SINGLE of a code point from U+0080 on."""
    c = code_point
    if c < 0x2000:
        return SEPARATOR if c < 0xC0 and c not in (0xAA, 0xB5, 0xBA) or c in (0xD7, 0xF7) else LETTER
    if c < 0x2E80:
        return LETTER if 0x2C00 <= c < 0x2E00 else SEPARATOR
    if c < 0x3005:
        return SEPARATOR if c >= 0x3000 else SINGLE
    if c < 0xA000:
        is_letter = 0x3105 <= c < 0x3190
        is_separator = 0x3008 <= c < 0x3021 or 0x302A <= c < 0x3031 or c == 0x30FB
        return SEPARATOR if is_separator else LETTER if is_letter else SINGLE
    if 0xF900 <= c < 0xFB00 or c >= 0x20000:
        return SINGLE
    if (
        c >= 0x1F000
        or 0xFE00 <= c < 0xFE70
        or c == 0xFEFF
        or 0xFF00 <= c < 0xFF10
        or 0xFF1A <= c < 0xFF21
        or 0xFF3B <= c < 0xFF41
        or 0xFF5B <= c < 0xFF66
    ):
        return SEPARATOR
    return SEPARATOR if 0xD800 <= c < 0xF900 or 0xFFF0 <= c < 0x10000 else LETTER


@numba.njit(nogil=True, cache=True)
def decode(values: np.ndarray, i: int) -> tuple[int, int]:
    """(code point, its length in bytes) of valid UTF-8 at position i."""
    c = values[i]
    if c < 0x80:
        return c & 0x7F, 1
    if c < 0xE0:
        return (c & 0x1F) << 6 | values[i + 1] & 0x3F, 2
    if c < 0xF0:
        return (c & 0x0F) << 12 | (values[i + 1] & 0x3F) << 6 | values[i + 2] & 0x3F, 3
    high = (c & 0x07) << 18 | (values[i + 1] & 0x3F) << 12
    return high | (values[i + 2] & 0x3F) << 6 | values[i + 3] & 0x3F, 4


@numba.njit(nogil=True, cache=True)
def next_word(values: np.ndarray, i: int, end: int) -> tuple[np.uint64, int]:
    """(hash of the first word in values[i:end], position behind it); the hash is 0 if there is none."""
    h = _HASH_START
    inside = False
    while i < end:
        c = values[i]
        if c < 128:
            c = _ASCII[c]
            if c == 0:
                if inside:
                    break
                i += 1
                continue
            h = (h ^ np.uint64(c)) * _HASH_PRIME
            i += 1
        else:
            code_point, length = decode(values, i)
            kind = character_class(code_point)
            if kind != LETTER and inside:
                break
            if kind == SEPARATOR:
                i += length
                continue
            for k in range(length):
                h = (h ^ np.uint64(values[i + k])) * _HASH_PRIME
            i += length
            if kind == SINGLE:
                inside = True
                break
        inside = True
    if not inside:
        return np.uint64(0), end
    h = (h ^ (h >> np.uint64(32))) * _MIX
    h ^= h >> np.uint64(29)
    return h if h != 0 else np.uint64(1), i


@numba.njit(nogil=True, cache=True)
def ngram_hashes(values: np.ndarray, begin: int, end: int, n: int, out: np.ndarray) -> tuple[int, int]:
    """Writes the hash of each run of n words of values[begin:end] to `out`; returns (number of words, number of
    n-grams).

    out: uint64, of at least (end - begin) // 2 + 1 elements, which is the largest number of words that fits.
    """
    power = np.uint64(1)
    for _ in range(n):
        power *= _BASE
    window = np.zeros(n, np.uint64)
    rolling = np.uint64(0)
    num_words = num_grams = 0
    i = begin
    while True:
        h, i = next_word(values, i, end)
        if h == 0:
            return num_words, num_grams
        slot = num_words % n
        rolling = rolling * _BASE + h - window[slot] * power
        window[slot] = h
        num_words += 1
        if num_words >= n:
            g = (rolling ^ (rolling >> np.uint64(31))) * _MIX_2
            g ^= g >> np.uint64(32)
            out[num_grams] = g
            num_grams += 1


@numba.njit(nogil=True, cache=True)
def longest(offsets: np.ndarray) -> int:
    """Bytes of the longest text of a column."""
    most = 0
    for d in range(len(offsets) - 1):
        most = max(most, offsets[d + 1] - offsets[d])
    return most


def hash_texts(texts: list[bytes], n: int) -> list[np.ndarray]:
    """The distinct n-gram hashes of each text, sorted: uint64."""
    found = []
    for text in texts:
        out = np.empty(len(text) // 2 + 1, np.uint64)
        _, num_grams = ngram_hashes(np.frombuffer(text, np.uint8), 0, len(text), n, out)
        found.append(np.unique(out[:num_grams]))
    return found
