"""What a trained model of text takes for its tokens. Whoever changes it raises the versions of the files that rest on
it (`KIND` of data/quality/classifier.py and of data/quality/ngram_model.py); so it stands apart from what words are for
comparing texts (data/text/words.py).

White space and control characters stand between tokens and are none. A word is a run of letters and digits, with ASCII
letters in lower case and each digit as "0"; a character of a script without spaces between words (Han, Kana, Thai, Lao,
Khmer, Myanmar), a mark of punctuation and a symbol are a token each. This is decided by the bytes of UTF-8, so that a
rare sign may count as a letter, which does no harm.
"""

import numba
import numpy as np

from data.text.inner import inner

SPACE, WORD, ALONE, LOOK = 0, 1, 2, 3

_START = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def _kinds() -> np.ndarray:
    """uint8[256]: what a character that begins with this byte is; LOOK if that depends on its second byte. Later bytes
    of a character count as WORD."""
    kinds = np.full(256, WORD, np.uint8)
    kinds[:33], kinds[127] = SPACE, SPACE
    for byte in range(33, 127):
        if not chr(byte).isalnum():
            kinds[byte] = ALONE
    kinds[[0xC2, 0xE0, 0xE1]] = LOOK
    kinds[0xE2:0xEA] = ALONE  # U+2000 to U+9FFF: punctuation, symbols, Kana, Han
    kinds[0xEE:] = ALONE  # from U+E000 on: full-width forms, Han, emoji
    return kinds


def _folded() -> np.ndarray:
    """uint8[256]: a byte of a word as it is hashed."""
    folded = np.arange(256, dtype=np.uint8)
    folded[48:58] = 48
    folded[65:91] += 32
    return folded


_KINDS = _kinds()
_FOLDED = _folded()
_INSIDE = np.where(_KINDS == WORD, _FOLDED, 0).astype(np.uint8)  # so that a byte of a word is looked up once


@inner
def _kind_by_two(first: int, second: int) -> int:
    """SPACE, WORD or ALONE: the character with these first bytes, of which LOOK is said."""
    if first == 0xC2:  # U+0080 to U+00BF: controls, the space that does not break, marks
        return SPACE if second <= 0xA0 else ALONE
    if first == 0xE0:  # Thai, Lao
        return ALONE if 0xB8 <= second <= 0xBB else WORD
    return ALONE if 0x80 <= second <= 0x82 or 0x9E <= second <= 0x9F else WORD  # Myanmar, Khmer


@numba.njit(nogil=True, cache=True)
def next_token(values: np.ndarray, i: int, end: int) -> tuple[np.uint64, int, int]:
    """(hash of the first token in values[i:end], where it begins, the position behind it); the hash is 0 if there is
    none. values: uint8, valid UTF-8."""
    kind = SPACE
    while i < end:
        kind = _KINDS[values[i]]
        if kind == LOOK:
            kind = _kind_by_two(values[i], values[i + 1])
        if kind != SPACE:
            break
        i += 2 if values[i] >= 128 else 1
    begin = i
    if i >= end:
        return np.uint64(0), end, end
    h = _START
    if kind == ALONE:
        h = (h ^ np.uint64(values[i])) * _PRIME
        i += 1
        while i < end and values[i] & 0xC0 == 0x80:
            h = (h ^ np.uint64(values[i])) * _PRIME
            i += 1
    else:
        while i < end:
            byte = _INSIDE[values[i]]
            if byte == 0:
                if _KINDS[values[i]] != LOOK or _kind_by_two(values[i], values[i + 1]) != WORD:
                    break
                byte = values[i]
            h = (h ^ np.uint64(byte)) * _PRIME
            i += 1
    h = (h ^ (h >> np.uint64(32))) * _MIX
    h ^= h >> np.uint64(29)
    return h if h != 0 else np.uint64(1), begin, i
