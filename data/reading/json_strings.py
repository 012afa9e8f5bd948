"""The characters that a JSON string stands for."""

import numpy as np

from data.reading.json_grammar import hex_digit
from data.text.inner import inner
from data.text.machine import first_byte, load8, store8, zero_bytes

_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)


@inner
def unescape(values: np.ndarray, i: int, end: int, out: np.ndarray, at: int) -> int:
    """Like `_copy_field`, of a valid string. Writes up to PADDING bytes more than it says."""
    while i < end:
        word = load8(values, i)
        hit = zero_bytes(word ^ _BACKSLASHES)
        store8(out, at, word)
        step = first_byte(hit) if hit != 0 else 8
        if i + step >= end:
            return at + end - i
        i += step
        at += step
        if hit == 0:
            continue
        c = values[i + 1]
        if c != 0x75:
            out[at] = _plain_escape(c)
            at += 1
            i += 2
            continue
        point = _four_hex(values, i + 2)
        i += 6
        if 0xD800 <= point < 0xE000:
            if point >= 0xDC00 or i + 6 > end or values[i] != 0x5C or values[i + 1] != 0x75:
                return -1
            low = _four_hex(values, i + 2)
            if not 0xDC00 <= low < 0xE000:
                return -1
            point = 0x10000 + ((point - 0xD800) << 10) + low - 0xDC00
            i += 6
        if point == 0:
            return -1
        at = _write_character(out, at, point)
    return at


@inner
def _plain_escape(c: int) -> int:
    if c == 0x62:
        return 8
    if c == 0x66:
        return 12
    if c == 0x6E:
        return 10
    if c == 0x72:
        return 13
    return 9 if c == 0x74 else c


@inner
def _four_hex(values: np.ndarray, i: int) -> int:
    number = 0
    for k in range(i, i + 4):
        number = number << 4 | hex_digit(values[k])
    return number


@inner
def _write_character(out: np.ndarray, at: int, point: int) -> int:
    if point < 0x80:
        out[at] = point
        return at + 1
    if point < 0x800:
        out[at] = 0xC0 | point >> 6
        out[at + 1] = 0x80 | point & 0x3F
        return at + 2
    if point < 0x10000:
        out[at] = 0xE0 | point >> 12
        out[at + 1] = 0x80 | point >> 6 & 0x3F
        out[at + 2] = 0x80 | point & 0x3F
        return at + 3
    out[at] = 0xF0 | point >> 18
    out[at + 1] = 0x80 | point >> 12 & 0x3F
    out[at + 2] = 0x80 | point >> 6 & 0x3F
    out[at + 3] = 0x80 | point & 0x3F
    return at + 4
