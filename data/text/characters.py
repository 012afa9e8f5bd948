"""What a character is to a word, and UTF-8 for numba kernels.

| class | characters |
|---|---|
| LETTER | letters and decimal digits of scripts that put spaces or other marks between words |
| SINGLE | Han, Kana; letters of Thai, Lao, Myanmar and Khmer: scripts that are written without spaces between words |
| MARK | vowel signs and accents that stand apart from their letter: part of whatever they follow |
| SEPARATOR | everything else: spaces, punctuation, symbols, emoji, controls, characters for private use |

Categories are those of Unicode 3.2, which every Python carries next to its own version, so that a newer Python does
not see other words. What was assigned later counts as a letter where whole blocks hold scripts (below U+2000, U+2C00
to U+2DFF, from U+A000), as SINGLE in the blocks of Han, as a mark where Myanmar and Lao got vowel signs, and else as
a separator. All of U+2000 to U+2BFF is punctuation and symbols here.
"""

import unicodedata
from typing import Any

import numba
import numpy as np

from data.text.inner import inner

SEPARATOR, LETTER, SINGLE, MARK = 0, 1, 2, 3

_HAN_AND_KANA = (
    (0x2E80, 0x2FE0), (0x3005, 0x3008), (0x3021, 0x302A), (0x3031, 0x3036), (0x303B, 0x303D), (0x3041, 0x3097),
    (0x309D, 0x30A0), (0x30A1, 0x30FB), (0x30FC, 0x3100), (0x31F0, 0x3200), (0x3400, 0x4DC0), (0x4E00, 0xA000),
    (0xF900, 0xFB00),
)  # fmt: skip
_WITHOUT_SPACES = ((0x0E00, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800))  # Thai and Lao, Myanmar, Khmer
_LATER_MARKS = ((0x102B, 0x103F), (0x0EBA, 0x0EBB))  # medials of Myanmar, a vowel sign of Lao
_LATER_LETTERS = ((0x0080, 0x2000), (0x2C00, 0x2E00), (0xA000, 0xD800))
_SYMBOLS = ((0x2000, 0x2C00), (0x2E00, 0x2E80), (0xFE00, 0xFE70))
_EMOJI, _MORE_HAN, _TAGS = 0x1F000, 0x20000, 0xE0000


def _classes() -> np.ndarray:
    """uint8[65536]: class of each code point of the basic plane."""
    category = unicodedata.ucd_3_2_0.category
    kinds = {"L": LETTER, "M": MARK}
    classes = np.zeros(0x10000, np.uint8)
    unassigned = np.zeros(0x10000, bool)
    for code_point in range(0x10000):
        of = category(chr(code_point))
        classes[code_point] = LETTER if of == "Nd" else kinds.get(of[0], SEPARATOR)
        unassigned[code_point] = of == "Cn"
    for begin, end in _LATER_LETTERS:
        classes[begin:end][unassigned[begin:end]] = LETTER
    for begin, end in _WITHOUT_SPACES:
        digits = np.array([category(chr(c)) == "Nd" for c in range(begin, end)])
        classes[begin:end][(classes[begin:end] == LETTER) & ~digits] = SINGLE
    for begin, end in _LATER_MARKS:
        classes[begin:end] = MARK
    for begin, end in _HAN_AND_KANA:
        classes[begin:end] = SINGLE
    for begin, end in _SYMBOLS:
        classes[begin:end] = SEPARATOR
    classes[0xF900:0xFB00] = SINGLE
    return classes


_CLASSES = _classes()


@numba.njit(nogil=True, cache=True)
def character_class(code_point: int | np.int64) -> int | np.int64:
    """SEPARATOR, LETTER, SINGLE or MARK of a code point."""
    if code_point < 0x10000:
        return np.int64(_CLASSES[code_point])
    if code_point < _EMOJI:
        return LETTER
    return SINGLE if _MORE_HAN <= code_point < _TAGS else SEPARATOR


@numba.njit(nogil=True, cache=True)
def decode(values: np.ndarray, i: int) -> tuple[Any, int]:
    """(code point, its length in bytes) of valid UTF-8 at position i."""
    c = np.int64(values[i])
    if c < 0x80:
        return c, 1
    if c < 0xE0:
        return (c & 0x1F) << 6 | np.int64(values[i + 1]) & 0x3F, 2
    if c < 0xF0:
        return (c & 0x0F) << 12 | (np.int64(values[i + 1]) & 0x3F) << 6 | np.int64(values[i + 2]) & 0x3F, 3
    high = (c & 0x07) << 18 | (np.int64(values[i + 1]) & 0x3F) << 12
    return high | (np.int64(values[i + 2]) & 0x3F) << 6 | np.int64(values[i + 3]) & 0x3F, 4


@inner
def is_space(byte: int) -> bool:
    """Whether a byte is ASCII white space."""
    return byte == 32 or 9 <= byte <= 13
