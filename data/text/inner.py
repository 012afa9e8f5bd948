"""Functions that other kernels call and Python does not: without the wrappers by which Python would call them, which
take a third of the time that such a function takes to compile. A call from Python ends the process: what a test is to
call by itself is an ordinary `numba.njit`."""

from typing import Any

import numba

_njit: Any = numba.njit  # whose types lack these two arguments
inner = _njit(nogil=True, cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
