"""The grammar of JSON over bytes: how far a value reaches, by RFC 8259 and no wider. It is in UTF-8.

Every array is uint8 and reaches 8 bytes further than the text. A value that is not valid, or nested MAX_DEPTH deep or
more, ends at -1.
"""

import numpy as np

from data.reading.text_kernels import character_bytes
from data.text.inner import inner
from data.text.machine import first_byte, load8, zero_bytes

ABSENT, STRING, ESCAPED_STRING, WHOLE_NUMBER, OTHER_VALUE = 0, 1, 2, 3, 4
MAX_DEPTH = 60
MOST_NUMBER_BYTES = 4000  # Python refuses whole numbers of more than 4300 digits

_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES = np.uint64(0x2020202020202020)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TRUE, _NULL, _ALSE = np.uint64(0x65757274), np.uint64(0x6C6C756E), np.uint64(0x65736C61)  # false without its f


@inner
def skip_space(values: np.ndarray, i: int, end: int) -> int:
    while i < end and (values[i] == 32 or values[i] == 10 or values[i] == 13 or values[i] == 9):
        i += 1
    return i


@inner
def skip_string(values: np.ndarray, i: int, end: int) -> tuple[int, bool]:
    """(place behind the quote that closes a string, whether it holds a backslash). i: behind its first quote."""
    escaped = False
    while i < end:
        word = load8(values, i)
        control = (word - _SPACES) & ~word & _HIGH_BITS
        hit = zero_bytes(word ^ _QUOTES) | zero_bytes(word ^ _BACKSLASHES) | control | word & _HIGH_BITS
        if hit == 0:
            i += 8
            continue
        i += first_byte(hit)
        if i >= end:
            break
        if values[i] == 0x22:
            return i + 1, escaped
        if values[i] == 0x5C:
            escaped = True
            length = _escape_bytes(values, i, end)
        else:
            length = character_bytes(values, i, end) if values[i] >= 0x80 else 0
        if length == 0:
            break
        i += length
        while length > 1 and i < end and values[i] >= 0x80:
            length = character_bytes(values, i, end)
            i += length
        if length == 0:
            break
    return -1, escaped


@inner
def _escape_bytes(values: np.ndarray, i: int, end: int) -> int:
    """The length of the escape at a backslash, or 0 if JSON knows no such."""
    if i + 1 >= end:
        return 0
    c = values[i + 1]
    if c == 0x75:
        if i + 6 > end:
            return 0
        for k in range(i + 2, i + 6):
            if hex_digit(values[k]) < 0:
                return 0
        return 6
    known = c == 0x22 or c == 0x5C or c == 0x2F or c == 0x62 or c == 0x66 or c == 0x6E or c == 0x72 or c == 0x74
    return 2 if known else 0


@inner
def hex_digit(c: int) -> int:
    """0 to 15, or -1."""
    if 0x30 <= c <= 0x39:
        return c - 0x30
    lower = c | 0x20
    return lower - 0x57 if 0x61 <= lower <= 0x66 else -1


@inner
def _skip_scalar(values: np.ndarray, i: int, end: int) -> tuple[int, int]:
    """(place behind a value that is neither an object nor an array, its kind); the place is -1 if there is none."""
    c = values[i]
    if c == 0x22:
        i, escaped = skip_string(values, i + 1, end)
        return i, ESCAPED_STRING if escaped else STRING
    if c == 0x74:
        return _skip_word(values, i, end, _TRUE), OTHER_VALUE
    if c == 0x6E:
        return _skip_word(values, i, end, _NULL), OTHER_VALUE
    if c == 0x66:
        return _skip_word(values, i + 1, end, _ALSE), OTHER_VALUE
    return _skip_number(values, i, end)


@inner
def _skip_word(values: np.ndarray, i: int, end: int, letters: np.uint64) -> int:
    if i + 4 > end or load8(values, i) & np.uint64(0xFFFFFFFF) != letters:
        return -1
    return i + 4


@inner
def _skip_digits(values: np.ndarray, i: int, end: int) -> int:
    while i < end and 0x30 <= values[i] <= 0x39:
        i += 1
    return i


@inner
def _skip_number(values: np.ndarray, i: int, end: int) -> tuple[int, int]:
    begin = i
    if values[i] == 0x2D:
        i += 1
    first = i
    i = _skip_digits(values, i, end)
    if i == first or (values[first] == 0x30 and i > first + 1) or i - begin > MOST_NUMBER_BYTES:
        return -1, ABSENT
    kind = WHOLE_NUMBER
    if i + 1 < end and values[i] == 0x2E:
        fraction = i + 1
        i = _skip_digits(values, fraction, end)
        if i == fraction:
            return -1, ABSENT
        kind = OTHER_VALUE
    if i + 1 < end and values[i] | 0x20 == 0x65:
        exponent = i + 2 if values[i + 1] == 0x2B or values[i + 1] == 0x2D else i + 1
        i = _skip_digits(values, exponent, end)
        if i == exponent:
            return -1, ABSENT
        kind = OTHER_VALUE
    return i, kind


@inner
def skip_value(values: np.ndarray, i: int, end: int) -> tuple[int, int]:
    """(place behind the value that begins at i, its kind); the place is -1 if it is not valid or nested too deep."""
    if i >= end:
        return -1, ABSENT
    if values[i] != 0x7B and values[i] != 0x5B:
        return _skip_scalar(values, i, end)
    objects = np.uint64(0)  # a bit for each open bracket, the innermost lowest: 1 for an object
    open_brackets = 0
    while True:
        # Here a value begins.
        if values[i] == 0x7B or values[i] == 0x5B:
            open_brackets += 1
            if open_brackets >= MAX_DEPTH:
                return -1, ABSENT
            is_object = values[i] == 0x7B
            objects = objects << np.uint64(1) | np.uint64(is_object)
            i = skip_space(values, i + 1, end)
            if i >= end:
                return -1, ABSENT
            if values[i] != (0x7D if is_object else 0x5D):
                i = _skip_name(values, i, end) if is_object else i
                if i < 0 or i >= end:
                    return -1, ABSENT
                continue
        else:
            i, _ = _skip_scalar(values, i, end)
            if i < 0:
                return -1, ABSENT
            i = skip_space(values, i, end)
        # Here a value ended, or stands the bracket that closes an empty one.
        while i < end and values[i] == (0x7D if objects & np.uint64(1) else 0x5D):
            open_brackets -= 1
            objects >>= np.uint64(1)
            i += 1
            if open_brackets == 0:
                return i, OTHER_VALUE
            i = skip_space(values, i, end)
        if i >= end or values[i] != 0x2C:
            return -1, ABSENT
        i = skip_space(values, i + 1, end)
        if objects & np.uint64(1):
            i = _skip_name(values, i, end)
        if i < 0 or i >= end:
            return -1, ABSENT


@inner
def _skip_name(values: np.ndarray, i: int, end: int) -> int:
    """The place of the value behind a name and its colon, or -1."""
    if i >= end or values[i] != 0x22:
        return -1
    i, _ = skip_string(values, i + 1, end)
    if i < 0:
        return -1
    i = skip_space(values, i, end)
    if i >= end or values[i] != 0x3A:
        return -1
    return skip_space(values, i + 1, end)
