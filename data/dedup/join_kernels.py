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
    rows as entries; returns their number. entries: uint64[m, 2], (key, row)."""
    mask = np.uint64(table_size(len(entries)) - 1)
    keys = np.empty(mask + _ONE, np.uint64)
    rows = np.full(mask + _ONE, -1, np.int64)
    num_links = 0
    for e in range(len(entries)):
        key, row = entries[e, 0], np.int64(entries[e, 1])
        slot = key & mask
        while rows[slot] >= 0 and keys[slot] != key:
            slot = (slot + _ONE) & mask
        if rows[slot] < 0:
            keys[slot], rows[slot] = key, row
        else:
            links[num_links, 0], links[num_links, 1] = rows[slot], row
            num_links += 1
    return num_links


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
