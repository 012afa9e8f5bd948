"""Kernels of the join of documents by their keys: buffers in, buffers out, without the GIL. The meaning of each is in
data/dedup/band_join.py."""

import numba
import numpy as np

from data.text.inner import inner

_ONE = np.uint64(1)


@inner
def table_size(count: int) -> int:
    size = 16
    while size < 2 * count:
        size *= 2
    return size


@numba.njit(nogil=True, cache=True)
def scatter_keys(
    keys: np.ndarray, local: np.ndarray, first_row: int, shift: int, counts: np.ndarray, out: np.ndarray
) -> None:
    """Sorts keys[local] into ranges by their bits from `shift` on (64: one range).

    keys: uint64[d, bands]. counts: int64[bands, ranges], set. out: uint64[len(local) * bands, 2], (key, row) by band
    and range.
    """
    counts[:] = 0
    num_bands, num_ranges = counts.shape
    for d in local:
        for b in range(num_bands):
            part = np.int64(keys[d, b] >> np.uint64(shift)) if num_ranges > 1 else 0
            counts[b, part] += 1
    places = np.empty(counts.shape, np.int64)
    total = 0
    for b in range(num_bands):
        for r in range(num_ranges):
            places[b, r] = total
            total += counts[b, r]
    for d in local:
        for b in range(num_bands):
            part = np.int64(keys[d, b] >> np.uint64(shift)) if num_ranges > 1 else 0
            place = places[b, part]
            out[place, 0], out[place, 1] = keys[d, b], first_row + d
            places[b, part] += 1


@numba.njit(nogil=True, cache=True)
def link_equal_keys(entries: np.ndarray, links: np.ndarray) -> int:
    """Writes (row that came first with a key, row) of each later row with it to `links`, int64 of at least as many
    rows as entries; returns their number. entries: uint64[m, 2], (key, row), fewer than 2**31."""
    mask = np.uint64(table_size(len(entries)) - 1)
    first = np.full(mask + _ONE, -1, np.int32)  # by the slot of a key: the entry that has it first
    num_links = 0
    for e in range(len(entries)):
        key = entries[e, 0]
        slot = key & mask
        while first[slot] >= 0 and entries[first[slot], 0] != key:
            slot = (slot + _ONE) & mask
        if first[slot] < 0:
            first[slot] = e
        else:
            links[num_links, 0], links[num_links, 1] = entries[first[slot], 1], entries[e, 1]
            num_links += 1
    return num_links


@numba.njit(nogil=True, cache=True)
def number_shared_keys(keys: np.ndarray, buckets: np.ndarray, sizes: np.ndarray) -> int:
    """Numbers the keys that stand in one column more than once, from 0 on; returns how many there are.

    keys: uint64[n, columns], n < 2**31. buckets: int64[n, columns], set to the number of each, -1 for a key that stands
    alone. sizes: int64 of at least half as many values as keys, set to how often each numbered key stands there.
    """
    num_rows, num_columns = keys.shape
    mask = np.uint64(table_size(num_rows) - 1)
    first = np.empty(mask + _ONE, np.int32)  # by the slot of a key: the row that has it first
    num_buckets = 0
    for column in range(num_columns):
        first[:] = -1
        for row in range(num_rows):
            slot = keys[row, column] & mask
            while first[slot] >= 0 and keys[first[slot], column] != keys[row, column]:
                slot = (slot + _ONE) & mask
            buckets[row, column] = -1
            if first[slot] < 0:
                first[slot] = row
                continue
            if buckets[first[slot], column] < 0:
                buckets[first[slot], column] = num_buckets
                sizes[num_buckets] = 1
                num_buckets += 1
            buckets[row, column] = buckets[first[slot], column]
            sizes[buckets[row, column]] += 1
    return num_buckets


@inner
def root_of(parent: np.ndarray, row: int) -> int:
    while parent[row] != row:
        parent[row] = parent[parent[row]]
        row = parent[row]
    return row


@numba.njit(nogil=True, cache=True)
def unite(parent: np.ndarray, pairs: np.ndarray) -> None:
    """Joins the sets of each pair of rows; the root of a set is its least row. parent: int64[n]. pairs: int64[m,
    2]."""
    for p in range(len(pairs)):
        a, b = root_of(parent, pairs[p, 0]), root_of(parent, pairs[p, 1])
        parent[max(a, b)] = min(a, b)


@numba.njit(nogil=True, cache=True)
def flatten(parent: np.ndarray) -> None:
    """Sets each row's parent to the root of its set."""
    for row in range(len(parent)):
        parent[row] = parent[parent[row]]
