"""One pass over texts in an Arrow buffer: is each of them valid UTF-8 with something in it, and a hash of its bytes."""

import numba
import numpy as np

from data.text.inner import inner
from data.text.machine import load8, zero_bytes

FINE, NOT_UTF8, HOLDS_NUL, BLANK = 0, 1, 2, 4

_HIGH_BITS = np.uint64(0x8080808080808080)
_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_SEED_2 = np.uint64(0xD6E8FEB86659FD93)


@inner
def character_bytes(values: np.ndarray, i: int, end: int) -> int:
    """The length of the character at values[i], or 0 if there is no valid UTF-8 there (RFC 3629: no surrogates, no
    longer form than needed, nothing above U+10FFFF)."""
    c = values[i]
    if c < 0x80:
        return 1
    if c < 0xC2 or c > 0xF4:
        return 0
    length = 2 if c < 0xE0 else 3 if c < 0xF0 else 4
    if i + length > end:
        return 0
    second = values[i + 1]
    if second & 0xC0 != 0x80:
        return 0
    if (
        (c == 0xE0 and second < 0xA0)
        or (c == 0xED and second > 0x9F)
        or (c == 0xF0 and second < 0x90)
        or (c == 0xF4 and second > 0x8F)
    ):
        return 0
    for k in range(2, length):
        if values[i + k] & 0xC0 != 0x80:
            return 0
    return length


@inner
def scan(values: np.ndarray, begin: int, end: int) -> int:
    """FINE or NOT_UTF8, with HOLDS_NUL if there is a zero byte."""
    found = FINE
    i = begin
    while i < end:
        if i + 8 <= end:
            word = load8(values, i)
            if word & _HIGH_BITS == 0:
                if zero_bytes(word) != 0:
                    found |= HOLDS_NUL
                i += 8
                continue
        length = character_bytes(values, i, end)
        if length == 0:
            return found | NOT_UTF8
        if values[i] == 0:
            found |= HOLDS_NUL
        i += length
    return found


@inner
def is_blank(values: np.ndarray, begin: int, end: int) -> bool:
    """Whether valid UTF-8 holds nothing but what Python's str.isspace calls white space."""
    i = begin
    while i < end:
        c = values[i]
        if c < 0x80:
            if not (9 <= c <= 13 or 28 <= c <= 32):
                return False
            i += 1
        elif c == 0xC2:
            if values[i + 1] != 0x85 and values[i + 1] != 0xA0:
                return False
            i += 2
        elif 0xE1 <= c <= 0xE3:
            point = (values[i + 1] & 0x3F) << 6 | values[i + 2] & 0x3F | (c & 0x0F) << 12
            if not (0x2000 <= point <= 0x200A or point in (0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)):
                return False
            i += 3
        else:
            return False
    return True


@numba.njit(nogil=True, cache=True)
def scan_texts(values: np.ndarray, offsets: np.ndarray, found: np.ndarray) -> None:
    """values: uint8[num_bytes]. offsets: int64[n + 1]. found: uint8[n], the flags of each text."""
    for row in range(len(found)):
        begin, end = offsets[row], offsets[row + 1]
        flags = scan(values, begin, end)
        if flags & NOT_UTF8 == 0 and is_blank(values, begin, end):
            flags |= BLANK
        found[row] = flags


@numba.njit(nogil=True, cache=True)
def hash_bytes(values: np.ndarray, begin: int, end: int) -> tuple[np.uint64, np.uint64]:
    """128 bits that tell texts apart. Not meant to withstand someone who looks for a collision."""
    a, b = _PRIME_1 + np.uint64(end - begin), _SEED_2 ^ np.uint64(end - begin)
    i = begin
    while i + 16 <= end:
        x, y = load8(values, i), load8(values, i + 8)
        a = _turn((a ^ x) * _PRIME_2, 29) + y
        b = _turn((b ^ y) * _PRIME_1, 31) + x
        i += 16
    for k in range(i, end):
        x = np.uint64(values[k])
        a = _turn((a ^ x) * _PRIME_2, 29)
        b = _turn((b ^ x) * _PRIME_1, 31)
    a, b = _finish(a + _turn(b, 17)), _finish(b ^ _turn(a, 41))
    return _finish(a + b), b + _PRIME_3 * a


@numba.njit(nogil=True, inline="always")
def _turn(x: np.uint64, bits: int) -> np.uint64:
    return x << np.uint64(bits) | x >> np.uint64(64 - bits)


@numba.njit(nogil=True, inline="always")
def _finish(x: np.uint64) -> np.uint64:
    """The finaliser of MurmurHash3 (64 bits)."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@numba.njit(nogil=True, cache=True)
def name_by_hash(values: np.ndarray, offsets: np.ndarray, prefix: np.ndarray, names: np.ndarray) -> None:
    """names: uint8[n, len(prefix) + 32], for each text the prefix and its hash in lower-case hex."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    width = len(prefix)
    for row in range(len(names)):
        name = names[row]
        name[:width] = prefix
        for half in hash_bytes(values, offsets[row], offsets[row + 1]):
            for k in range(16):
                name[width + k] = digits[np.int64(half >> np.uint64(60 - 4 * k)) & 15]
            width += 16
        width = len(prefix)
