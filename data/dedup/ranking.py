"""Who survives among duplicates: documents of a known corpus, then held-out text before training text, then the better
one by quality score, then the longer one, then the smaller fingerprint of the text, then the smaller id.

So the surviving texts depend neither on the order of the documents nor on their shards.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

QUALITY_DIGITS = 6
FINGERPRINT_BITS = 32  # of a fingerprint at least, in what documents are sorted by: then few are equal


def rank(
    *,
    known: np.ndarray,
    heldout: np.ndarray,
    quality: np.ndarray,
    num_bytes: np.ndarray,
    fingerprints: np.ndarray,
    ids: Callable[[np.ndarray], pa.Array],
) -> np.ndarray:
    """int64[n]: 0 for the document that survives against all others.

    known, heldout: bool[n]. quality: float[n], higher is better. num_bytes: int64[n]. fingerprints: uint64[n, 2].
    ids: gives the ids, all different, of rows: int64[k], ascending.
    """
    score = -np.round(np.asarray(quality, np.float64), QUALITY_DIGITS)
    codes = [~known, ~heldout, _dense(score), np.max(num_bytes, initial=0) - num_bytes]
    keys = _packed(codes, fingerprints[:, 0])
    order = np.argsort(keys)  # of one key, as it takes a tenth of the time of several
    repeats = np.zeros(len(order) + 1, bool)
    repeats[1:-1] = keys[order[1:]] == keys[order[:-1]]
    tied = repeats[:-1] | repeats[1:]  # few, so that only their ids are compared
    if tied.any():
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(~repeats[:-1])
        rows = np.sort(order[tied])
        by_id = _positions(np.asarray(pc.sort_indices(ids(rows))))
        order[tied] = rows[np.lexsort((by_id, fingerprints[rows, 1], fingerprints[rows, 0], group[rows]))]
    return _positions(order)


def _packed(codes: Sequence[np.ndarray], last: np.ndarray) -> np.ndarray:
    """uint64[n], in the order of the codes (whole numbers from 0 on, the first one counts most) and then of as many of
    the highest bits of `last` (uint64[n]) as there is room for, FINGERPRINT_BITS at least."""
    packed, bits = np.zeros(len(last), np.uint64), 0
    for code in codes:
        width = int(np.max(code, initial=0)).bit_length()
        if width:
            packed, bits = packed << np.uint64(width) | code.astype(np.uint64), bits + width
            assert bits <= 64, "more documents, or longer ones, than there are"
        if bits > 64 - FINGERPRINT_BITS:
            packed = _dense(packed).astype(np.uint64)
            bits = int(np.max(packed, initial=0)).bit_length()
    return packed << np.uint64(64 - bits) | last >> np.uint64(bits) if bits else last


def _dense(values: np.ndarray) -> np.ndarray:
    """int64[n]: how many different values are less."""
    if not (values[1:] != values[:-1]).any():
        return np.zeros(len(values), np.int64)
    return np.unique(values, return_inverse=True)[1]


def _positions(order: np.ndarray) -> np.ndarray:
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return positions
