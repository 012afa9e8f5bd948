"""Lines that stand in many documents, such as menus, notices and licences: counted, and taken out.

A line is what stands between two line feeds; lines are the same if they are once runs of white space are one space,
and none at either end. Shorter lines than asked for, in characters of that form, are left alone. A line counts once
for a document, however often it stands there. Lines are told apart by 64-bit hashes: among n lines, with t in the
table, one that is not in it is taken for one that is with a probability of about n * t / 2^64.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from data.reading.tables import text_buffers


def count_lines(texts: pa.LargeStringArray, least_characters: int) -> tuple[np.ndarray, np.ndarray]:
    """(uint64 hashes of the lines, sorted; int64 number of documents that each stands in)."""
    document, _, _, hashes = _find(texts, least_characters)
    order = np.lexsort((document, hashes))
    document, hashes = document[order], hashes[order]
    is_new = np.ones(len(hashes), bool)
    is_new[1:] = hashes[1:] != hashes[:-1]
    is_new_there = is_new.copy()
    is_new_there[1:] |= document[1:] != document[:-1]
    starts = np.flatnonzero(is_new)
    return hashes[starts], np.add.reduceat(is_new_there, starts, dtype=np.int64) if len(starts) else starts


def merge_counts(counted: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """What `count_lines` gives for all texts of several columns together. In memory: 16 bytes for each line of
    each."""
    hashes = np.concatenate([np.zeros(0, np.uint64), *(part for part, _ in counted)])
    counts = np.concatenate([np.zeros(0, np.int64), *(part for _, part in counted)])
    order = np.argsort(hashes)
    hashes, counts = hashes[order], counts[order]
    starts = np.nonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])[0]
    return hashes[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def remove_lines(
    texts: pa.LargeStringArray, table: np.ndarray, least_characters: int
) -> tuple[pa.LargeStringArray, np.ndarray, np.ndarray]:
    """(texts without the lines of the table, each with the line feed behind it; int64[n] bytes removed; int64[n] lines
    removed). The same object if there is no such line.

    table: uint64, sorted hashes of lines.
    """
    from data.dedup.line_kernels import copy_without

    n = len(texts)
    document, begins, ends, hashes = _find(texts, least_characters)
    place = np.searchsorted(table, hashes)
    hit = place < len(table)
    hit[hit] = table[place[hit]] == hashes[hit]
    document, begins, ends = document[hit], begins[hit], ends[hit]
    removed_lines = np.bincount(document, minlength=n).astype(np.int64)
    if not len(document):
        return texts, np.zeros(n, np.int64), removed_lines
    removed_bytes = np.zeros(n, np.int64)
    np.add.at(removed_bytes, document, ends - begins)
    values, offsets = text_buffers(texts)
    kept_offsets = np.append(0, np.cumsum(np.diff(offsets) - removed_bytes))
    kept = np.empty(int(kept_offsets[-1]), np.uint8)
    copy_without(values, int(offsets[0]), int(offsets[-1]), begins, ends, kept)
    buffers = [None, pa.py_buffer(kept_offsets), pa.py_buffer(kept)]
    return pa.Array.from_buffers(pa.large_string(), n, buffers), removed_bytes, removed_lines


def _find(texts: pa.LargeStringArray, least_characters: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each line of at least so many characters: its document, where it begins and ends in the values, its hash."""
    from data.dedup.line_kernels import count_long_lines, hash_lines

    values, offsets = text_buffers(texts)
    most = count_long_lines(values, offsets, least_characters)
    document, begins, ends = (np.empty(most, np.int64) for _ in range(3))
    hashes = np.empty(most, np.uint64)
    m = hash_lines(values, offsets, least_characters, document, begins, ends, hashes)
    return document[:m], begins[:m], ends[:m], hashes[:m]
