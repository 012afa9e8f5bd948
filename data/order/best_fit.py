"""Kernels of best-fit packing: what goes into which bin, and the pieces of chosen bins.

Best-fit decreasing, as in Ding et al., Fewer Truncations Improve Language Modeling, ICML 2024, section 3: the items
from large to small, each into the fullest bin that still holds it. Free room is a whole number up to the capacity, so a
segment tree over it finds that bin: O(n log capacity).
"""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def _decreasing(sizes: np.ndarray, capacity: int) -> np.ndarray:
    """int64[n]: the items from large to small, equal ones in their order."""
    places = np.zeros(capacity + 2, np.int64)
    for size in sizes:
        places[capacity - size + 1] += 1
    for i in range(1, capacity + 2):
        places[i] += places[i - 1]
    order = np.empty(len(sizes), np.int64)
    for item in range(len(sizes)):
        slot = capacity - sizes[item]
        order[places[slot]] = item
        places[slot] += 1
    return order


@numba.njit(nogil=True, cache=True)
def _least_room(tree: np.ndarray, leaves: int, size: int) -> int:
    """The least room that is at least size and that a bin has, or -1. tree: bool[2 leaves], which node has a bin."""
    node = leaves + size
    while not tree[node]:
        while node & 1:
            node >>= 1
            if node <= 1:
                return -1
        node += 1
    while node < leaves:
        node <<= 1
        if not tree[node]:
            node += 1
    return node - leaves


@numba.njit(nogil=True, cache=True)
def pack(sizes: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Put items into bins. sizes: int64[n], each from 1 to capacity.

    Returns (offsets: int64[num_bins + 1], items: int64[n]): bin b holds items[offsets[b] : offsets[b + 1]], from large
    to small. Of bins with equal room the one that came to it last is filled first.
    """
    leaves = 1
    while leaves <= capacity:
        leaves *= 2
    tree = np.zeros(2 * leaves, np.bool_)
    latest = np.full(capacity + 1, -1, np.int64)  # of the bins with so much room
    before = np.empty(len(sizes), np.int64)  # of a bin, the next one with the same room
    bin_of = np.empty(len(sizes), np.int64)
    order = _decreasing(sizes, capacity)
    num_bins = np.int64(0)
    for item in order:
        size = sizes[item]
        room = _least_room(tree, leaves, size)
        if room < 0:
            chosen, room = num_bins, capacity
            num_bins += 1
        else:
            chosen = latest[room]
            latest[room] = before[chosen]
            node = leaves + room
            tree[node] = latest[room] >= 0
            while node > 1 and not tree[node]:
                node >>= 1
                tree[node] = tree[2 * node] or tree[2 * node + 1]
        bin_of[item] = chosen
        room -= size
        if room:
            before[chosen] = latest[room]
            latest[room] = chosen
            node = leaves + room
            while node and not tree[node]:
                tree[node] = True
                node >>= 1
    offsets = np.zeros(num_bins + 1, np.int64)
    for chosen in bin_of:
        offsets[chosen + 1] += 1
    for b in range(num_bins):
        offsets[b + 1] += offsets[b]
    places = offsets[:-1].copy()
    items = np.empty(len(sizes), np.int64)
    for item in order:
        items[places[bin_of[item]]] = item
        places[bin_of[item]] += 1
    return offsets, items


@numba.njit(nogil=True, cache=True)
def chosen_pieces(
    sequences: np.ndarray,
    whole: np.ndarray,
    offsets: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    sequence_tokens: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, start, length) of the pieces of sequences: int64[k] each.

    The first len(whole) sequences are single pieces of sequence_tokens; whole: int64[w], their starts. The others are
    bins; offsets: int64[num_bins + 1] into starts and lengths: int64[n].
    """
    count = 0
    for sequence in sequences:
        b = sequence - len(whole)
        count += offsets[b + 1] - offsets[b] if b >= 0 else 1
    row = np.empty(count, np.int64)
    start = np.empty(count, np.int64)
    length = np.empty(count, np.int64)
    k = 0
    for i in range(len(sequences)):
        b = sequences[i] - len(whole)
        if b < 0:
            row[k], start[k], length[k] = i, whole[sequences[i]], sequence_tokens
            k += 1
            continue
        for piece in range(offsets[b], offsets[b + 1]):
            row[k], start[k], length[k] = i, starts[piece], lengths[piece]
            k += 1
    return row, start, length
