"""Classes of bytes for the kernels that look for personal data. A byte of a non-ASCII character belongs to none of
them, so that an address that touches a Chinese or Cyrillic word is found.

The kernels take read-only bytes only, and these functions have fixed signatures: numba would compile them again for
every constant that they are called with.
"""

from typing import Any

import numba
import numpy as np
from numba import types

DIGIT, UPPER, LOWER, HEX = 1, 2, 4, 8
LOCAL = 16  # of the part of an e-mail address before the @
LABEL = 32  # of one label of a domain name
BASE64 = 64
URL_SAFE = 128  # of the URL-safe alphabet of Base64

LETTER = UPPER | LOWER
ALPHANUMERIC = DIGIT | LETTER


def _classes() -> np.ndarray:
    """uint8[256]: the classes of each byte."""
    table = np.zeros(256, np.uint8)
    upper, lower, digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz", b"0123456789"
    for flag, members in (
        (DIGIT, digits),
        (UPPER, upper),
        (LOWER, lower),
        (HEX, digits + b"abcdefABCDEF"),
        (LOCAL, digits + upper + lower + b"._%+'-"),
        (LABEL, digits + upper + lower + b"-"),
        (BASE64, digits + upper + lower + b"+/="),
        (URL_SAFE, digits + upper + lower + b"-_"),
    ):
        table[list(members)] |= flag
    return table


CLASSES = _classes()
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INT = types.int64
_INNER: Any = {"nogil": True, "cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # as `inner` has


@numba.njit(types.boolean(BYTES, _INT, _INT, _INT, _INT), **_INNER)
def is_in(values: np.ndarray, i: int, begin: int, end: int, classes: int) -> bool:
    """Whether there is a byte at i, and of one of these classes."""
    return begin <= i < end and CLASSES[values[i]] & classes != 0


@numba.njit(types.boolean(BYTES, _INT, _INT, _INT, _INT), **_INNER)
def is_byte(values: np.ndarray, i: int, begin: int, end: int, byte: int) -> bool:
    return begin <= i < end and values[i] == byte


@numba.njit(types.boolean(BYTES, _INT, _INT, _INT), **_INNER)
def in_word(values: np.ndarray, i: int, begin: int, end: int) -> bool:
    """Whether there is an ASCII letter, a digit or _ at i."""
    return begin <= i < end and (CLASSES[values[i]] & ALPHANUMERIC != 0 or values[i] == 95)


@numba.njit(_INT(BYTES, _INT, _INT, _INT, _INT), **_INNER)
def run_end(values: np.ndarray, i: int, end: int, classes: int, most: int) -> int:
    """Position behind the bytes of these classes from i on, at most `most` of them."""
    stop = min(end, i + most)
    while i < stop and CLASSES[values[i]] & classes != 0:
        i += 1
    return i


@numba.njit(_INT(BYTES, _INT, _INT), **_INNER)
def number(values: np.ndarray, i: int, end: int) -> int:
    """The value of the decimal digits values[i:end]."""
    found = 0
    for k in range(i, end):
        found = 10 * found + (values[k] - 48)
    return found


@numba.njit(types.boolean(BYTES, _INT, _INT, BYTES, _INT), **_INNER)
def stands(values: np.ndarray, i: int, end: int, word: np.ndarray, length: int) -> bool:
    """Whether word[:length] stands at i."""
    if i + length > end:
        return False
    for k in range(length):  # noqa: SIM110 (numba has no all())
        if values[i + k] != word[k]:
            return False
    return True
