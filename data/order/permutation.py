"""Keyed permutations of any size, without memory, and the keys for them."""

import hashlib

import numpy as np


def permute(places: np.ndarray, size: int, key: int | np.ndarray) -> np.ndarray:
    """int64[n]: where a keyed permutation of range(size) puts each of places: int64[n], below size. key: one for all,
    or uint64[n], one for each place.

    A Feistel network over the next power of two, at least 64, with cycle walking (Black and Rogaway, Ciphers with
    arbitrary finite domains, CT-RSA 2002).
    """
    from data.order.order_kernels import permute_places

    places = np.ascontiguousarray(places, dtype=np.int64)
    keys = np.atleast_1d(np.asarray(key, dtype=np.uint64))
    assert len(keys) in (1, len(places)), f"{len(keys)} keys for {len(places)} places"
    assert places.size == 0 or (places.min() >= 0 and places.max() < size), f"places outside range({size})"
    result = np.empty_like(places)
    permute_places(places, size, keys, result)
    return result


def derive_key(*parts: str | int) -> int:
    """A 64-bit key that is the same everywhere for the same parts."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")
