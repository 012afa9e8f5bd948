"""Which texts of a set are used: decided by a hash of each text alone, so by no order of files and no chance."""

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from data.reading.tables import text_buffers


def text_hashes(texts: pa.LargeStringArray) -> np.ndarray:
    """uint64[n]: BLAKE2b of each text, of 8 bytes."""
    values, offsets = text_buffers(texts)
    content = values.data
    found = np.empty(len(texts), np.uint64)
    for d in range(len(texts)):
        digest = hashlib.blake2b(content[offsets[d] : offsets[d + 1]], digest_size=8).digest()
        found[d] = int.from_bytes(digest, "little")
    return found


def sample(batches: Iterable[pa.LargeStringArray], most_bytes: int) -> pa.LargeStringArray:
    """All texts, in their order; of more than most_bytes those with the smallest hashes, so many as fit. At most
    five times most_bytes and two batches are in memory at a time."""
    kept: list[pa.LargeStringArray] = []
    hashes: list[np.ndarray] = []
    size = 0
    bound = None  # texts with this hash or a larger one are not taken
    for texts in batches:
        kept.append(texts)
        hashes.append(text_hashes(texts))
        size += int(_text_bytes(texts).sum())
        if size > 2 * most_bytes:
            kept, hashes, bound = _fitting(kept, hashes, most_bytes, bound)
            size = int(_text_bytes(kept[0]).sum())
    if kept:
        kept, _, _ = _fitting(kept, hashes, most_bytes, bound)
    return kept[0] if kept else pa.array([], pa.large_string())


def _fitting(
    texts: list[pa.LargeStringArray], hashes: list[np.ndarray], most_bytes: int, bound: np.uint64 | None
) -> tuple[list[pa.LargeStringArray], list[np.ndarray], np.uint64 | None]:
    """(the texts that are taken, joined; their hashes; the bound from now on)."""
    joined, keys = pa.concat_arrays(texts), np.concatenate(hashes)
    is_taken = keys < bound if bound is not None else np.ones(len(keys), bool)
    order = np.flatnonzero(is_taken)
    order = order[np.argsort(keys[order], kind="stable")]
    too_many = order[np.cumsum(_text_bytes(joined)[order]) > most_bytes]
    if len(too_many):
        bound = keys[too_many[0]]
        is_taken &= keys < bound
    if is_taken.all():
        return [joined], [keys], bound
    places = np.flatnonzero(is_taken)
    return [joined.take(pa.array(places))], [keys[places]], bound


def _text_bytes(texts: pa.LargeStringArray) -> np.ndarray:
    return np.diff(text_buffers(texts)[1])
