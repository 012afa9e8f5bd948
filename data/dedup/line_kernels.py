"""Kernels of repeated lines. The meaning of each is in data/dedup/repeated_lines.py."""

import numba
import numpy as np

from data.dedup.signature_kernels import fingerprint, single_spaced
from data.text.block_bytes import BLOCK_BYTES, line_feed_mask
from data.text.inner import inner
from data.text.machine import copy_bytes, trailing_zeros
from data.text.words import longest


@inner
def _line_end(values: np.ndarray, begin: int, end: int) -> int:
    """Behind the first line feed of values[begin:end], or end."""
    i = begin
    while i + BLOCK_BYTES <= len(values) and i < end:
        found = line_feed_mask(values, i)
        if found != 0:
            return min(end, i + trailing_zeros(found) + 1)
        i += BLOCK_BYTES
    while i < end:
        i += 1
        if values[i - 1] == 10:
            return i
    return end


@numba.njit(nogil=True, cache=True)
def count_long_lines(values: np.ndarray, offsets: np.ndarray, least_bytes: int) -> int:
    count = 0
    for d in range(len(offsets) - 1):
        begin, end = offsets[d], offsets[d + 1]
        while begin < end:
            stop = _line_end(values, begin, end)
            count += stop - begin >= least_bytes
            begin = stop
    return count


@numba.njit(nogil=True, cache=True)
def hash_lines(
    values: np.ndarray,
    offsets: np.ndarray,
    least_characters: int,
    document: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    hashes: np.ndarray,
) -> int:
    """Writes document, begin, end (with the line feed) and hash of each line of at least so many characters; returns
    their number, which is at most that of `count_long_lines`."""
    text = np.empty(longest(offsets) + BLOCK_BYTES, np.uint8)
    m = 0
    for d in range(len(offsets) - 1):
        begin, end = offsets[d], offsets[d + 1]
        while begin < end:
            stop = _line_end(values, begin, end)
            if stop - begin >= least_characters:
                num_bytes = single_spaced(values, begin, stop, text)
                num_characters = 0
                for i in range(num_bytes):
                    num_characters += text[i] & 0xC0 != 0x80
                if num_characters >= least_characters:
                    document[m], begins[m], ends[m] = d, begin, stop
                    hashes[m], _ = fingerprint(text, num_bytes)
                    m += 1
            begin = stop
    return m


@numba.njit(nogil=True, cache=True)
def copy_without(
    values: np.ndarray, begin: int, end: int, begins: np.ndarray, ends: np.ndarray, out: np.ndarray
) -> None:
    """Copies values[begin:end] but for the spans begins[k]:ends[k], which stand in ascending order."""
    o = 0
    for k in range(len(begins)):
        copy_bytes(out, o, values, begin, begins[k] - begin)
        o += begins[k] - begin
        begin = ends[k]
    copy_bytes(out, o, values, begin, end - begin)
