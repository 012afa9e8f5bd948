"""Kernels of repeated lines. The meaning of each is in data/dedup/repeated_lines.py."""

import numba
import numpy as np

from data.dedup.signature_kernels import fingerprint, single_spaced
from data.text.block_bytes import BLOCK_BYTES, line_feed_mask, trailing_zeros
from data.text.words import longest


@numba.njit(nogil=True, cache=True)
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
def first_in_document(document: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """bool[m]: whether a line stands in its document for the first time. document: int64[m], in ascending order."""
    first = np.ones(len(document), np.bool_)
    begin = 0
    while begin < len(document):
        end = begin
        while end < len(document) and document[end] == document[begin]:
            end += 1
        order = np.argsort(hashes[begin:end], kind="mergesort")
        for k in range(1, end - begin):
            first[begin + order[k]] = hashes[begin + order[k]] != hashes[begin + order[k - 1]]
        begin = end
    return first


@numba.njit(nogil=True, cache=True)
def copy_without(
    values: np.ndarray, begin: int, end: int, begins: np.ndarray, ends: np.ndarray, out: np.ndarray
) -> None:
    """Copies values[begin:end] but for the spans begins[k]:ends[k], which stand in ascending order."""
    o = 0
    for k in range(len(begins) + 1):
        stop = begins[k] if k < len(begins) else end
        for i in range(begin, stop):
            out[o] = values[i]
            o += 1
        if k < len(begins):
            begin = ends[k]
