"""Kernels of the scrubber: one pass over the bytes, 64 at a time, that looks closer only where personal data can stand
(at the first digit of a run, at @, at the marks of secrets), and the column with what was found replaced."""

from typing import Any

import numba
import numpy as np

from data.pii.addresses import email_at, ipv4_at, ipv6_at
from data.pii.byte_classes import CLASSES, DIGIT, UPPER
from data.pii.numbers import card_at, iban_at, phone_at
from data.pii.secrets import marker_pairs, secret_at
from data.text.block_bytes import BLOCK_BYTES, pii_masks
from data.text.inner import inner
from data.text.machine import copy_bytes, trailing_zeros

_ONE = np.uint64(1)
_int64: Any = np.int64
NUM_KINDS = 6
SECRET, EMAIL, IBAN, CARD, IP, PHONE = range(NUM_KINDS)


def trigger_table(kinds: list[int]) -> np.ndarray:
    """uint8[65536]: for each pair of bytes (first << 8 | second) the kinds, as bits, that may be found around the
    second one, which is a digit, @ or a mark."""
    table = np.zeros((256, 256), np.uint8)
    digits = np.arange(ord("0"), ord("9") + 1)
    others = np.setdiff1d(np.arange(256), digits)
    for kind in kinds:
        if kind == EMAIL:
            table[:, ord("@")] |= 1 << EMAIL
        elif kind == SECRET:
            table.reshape(-1)[marker_pairs()] |= 1 << SECRET
        else:
            table[np.ix_(others, digits)] |= 1 << kind
    return table.reshape(-1)


@inner
def _may_be(values: np.ndarray, i: int, begin: int, end: int, kind: int) -> bool:
    """Whether a look at a few bytes around the first digit at i leaves a kind of number possible: for most numbers in
    text it does not."""
    if kind in (EMAIL, SECRET):
        return True
    if kind == IBAN:
        return i - 2 >= begin and CLASSES[values[i - 1]] & CLASSES[values[i - 2]] & UPPER != 0
    if i + 5 > end:
        return False
    if kind == IP:
        return values[i + 1] == 46 or values[i + 2] == 46 or values[i + 3] == 46 or values[i + 4] == 58
    if kind == CARD:
        c = values[i + 4]
        return c == 32 or c == 45 or CLASSES[c] & DIGIT != 0
    if kind == PHONE:
        if i > begin and (values[i - 1] == 43 or values[i - 1] == 40):
            return True
        c = values[i + 3]
        return values[i] <= 49 or c == 45 or c == 46
    raise AssertionError


@inner
def _match(values: np.ndarray, i: int, begin: int, end: int, floor: int, kind: int) -> tuple[int, int]:
    if kind == SECRET:
        return secret_at(values, i, begin, end, floor)
    if kind == EMAIL:
        return email_at(values, i, begin, end, floor)
    if kind == IBAN:
        return iban_at(values, i, begin, end)
    if kind == CARD:
        return card_at(values, i, begin, end)
    if kind == PHONE:
        return phone_at(values, i, begin, end)
    first, stop = ipv4_at(values, i, begin, end)
    return (first, stop) if stop else ipv6_at(values, i, begin, end)


@inner
def _twice_as_long(found: np.ndarray) -> np.ndarray:
    more = np.empty((2 * len(found), 3), np.int64)
    for m in range(len(found)):
        for k in range(3):
            more[m, k] = found[m, k]
    return more


@inner
def _last_masks(values: np.ndarray, i: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """`pii_masks` of values[i:], of fewer than 64 bytes."""
    digits = ats = marks = np.uint64(0)
    for k in range(len(values) - i):
        c, bit = values[i + k], _ONE << np.uint64(k)
        if CLASSES[c] & DIGIT:
            digits |= bit
        elif c == 64:
            ats |= bit
        elif c == 65 or c == 66 or c == 74 or c == 122 or c == 95 or c == 45:
            marks |= bit
    return digits, ats, marks


@inner
def _all_bits(condition: bool) -> np.uint64:
    return ~np.uint64(0) if condition else np.uint64(0)


@numba.njit(nogil=True, cache=True)
def find(values: np.ndarray, offsets: np.ndarray, active: np.ndarray, table: np.ndarray, wanted: int) -> np.ndarray:
    """int64[m, 3]: (begin, end, kind) of all that is found, each kind looked for by itself from left to right.

    active: bool[n], the texts to look into. table: of `trigger_table`. wanted: bits of the same kinds.
    """
    any_number = _all_bits(wanted & ~(1 << EMAIL | 1 << SECRET) != 0)
    any_email, any_secret = _all_bits(wanted & 1 << EMAIL != 0), _all_bits(wanted & 1 << SECRET != 0)
    found = np.empty((16, 3), np.int64)
    count = 0
    floors = np.empty(NUM_KINDS, np.int64)
    for d in range(len(offsets) - 1):
        if not active[d]:
            continue
        begin, end = offsets[d], offsets[d + 1]
        for kind in range(NUM_KINDS):
            floors[kind] = begin
        after_digit = np.uint64(0)
        for block in range(begin, end, BLOCK_BYTES):
            if block + BLOCK_BYTES <= len(values):
                digits, ats, marks = pii_masks(values, block)
            else:
                digits, ats, marks = _last_masks(values, block)
            places = digits & ~(digits << _ONE | after_digit) & any_number | ats & any_email | marks & any_secret
            after_digit = digits >> np.uint64(63)
            if end - block < BLOCK_BYTES:
                places &= (_ONE << np.uint64(end - block)) - _ONE
            while places != 0:
                i = block + trailing_zeros(places)
                places &= places - _ONE
                before = np.int64(values[i - 1]) if i > begin else 0
                trigger = table[before << 8 | np.int64(values[i])]
                kind = _int64(0)  # not a constant, for which the functions would be compiled once more
                while trigger >> kind != 0:
                    if trigger >> kind & 1 and i >= floors[kind] and _may_be(values, i, begin, end, kind):
                        first, stop = _match(values, i, begin, end, floors[kind], kind)
                        if stop != 0:
                            if count == len(found):
                                found = _twice_as_long(found)
                            found[count, 0], found[count, 1], found[count, 2] = first, stop, kind
                            count += 1
                            floors[kind] = stop
                    kind += 1
    return found[:count]


@numba.njit(nogil=True, cache=True)
def replace(
    values: np.ndarray, offsets: np.ndarray, found: np.ndarray, placeholders: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(values, offsets) of the column with each of `found` (sorted, without overlaps) replaced.

    placeholders: uint8[NUM_KINDS * most], each in `most` bytes. lengths: int64[NUM_KINDS].
    """
    size = offsets[-1] - offsets[0]
    for m in range(len(found)):
        size += lengths[found[m, 2]] - (found[m, 1] - found[m, 0])
    out = np.empty(size, np.uint8)
    out_offsets = np.empty(len(offsets), np.int64)
    out_offsets[0] = 0
    most = len(placeholders) // NUM_KINDS
    begin = offsets[0]
    place = m = 0
    for d in range(len(offsets) - 1):
        end = offsets[d + 1]
        while m < len(found) and found[m, 0] < end:
            first, kind = found[m, 0], found[m, 2]
            copy_bytes(out, place, values, begin, first - begin)
            place += first - begin
            copy_bytes(out, place, placeholders, kind * most, lengths[kind])
            place += lengths[kind]
            begin = found[m, 1]
            m += 1
        out_offsets[d + 1] = place + end - begin
    copy_bytes(out, place, values, begin, offsets[-1] - begin)
    return out, out_offsets
