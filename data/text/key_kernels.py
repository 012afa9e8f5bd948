"""A 64-bit hash of short strings, such as names. It never changes with a library."""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def hash_strings(values: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """values: uint8[num_bytes]. offsets: integers [n + 1]. out: uint64[n], FNV-1a (64 bits) of the bytes of each
    string, mixed by the finaliser of splitmix64."""
    for i in range(len(out)):
        h = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(values[at])) * np.uint64(0x100000001B3)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = h ^ (h >> np.uint64(31))
