"""Shifts the wall clock of every Python process that has this folder on its path: time.time() and time.time_ns() are
off by the seconds that stand in the file LONGHAUL_CHAOS_CLOCK, a float64, which may change at any moment."""

import mmap
import os
import struct
import time

if path := os.environ.get("LONGHAUL_CHAOS_CLOCK"):
    with open(path, "rb") as file:
        _offset = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    _time, _time_ns = time.time, time.time_ns

    def _shifted() -> float:
        return _time() + struct.unpack("d", _offset[:8])[0]

    def _shifted_ns() -> int:
        return _time_ns() + int(struct.unpack("d", _offset[:8])[0] * 1e9)

    time.time, time.time_ns = _shifted, _shifted_ns
