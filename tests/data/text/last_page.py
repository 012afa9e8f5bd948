"""Memory behind which there is none, so that a kernel that reads or writes too far dies."""

import ctypes
import mmap

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
PROT_NONE = 0


def at_the_end(content: bytes) -> np.ndarray:
    """The bytes as uint8, the last one of which is the last of its page; the next page cannot be touched."""
    length = -(-len(content) // mmap.PAGESIZE) * mmap.PAGESIZE
    mapped = np.frombuffer(mmap.mmap(-1, length + mmap.PAGESIZE), np.uint8)
    mapped[length - len(content) : length] = np.frombuffer(content, np.uint8)
    if _libc.mprotect(mapped.ctypes.data + length, mmap.PAGESIZE, PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    return mapped[length - len(content) : length]
