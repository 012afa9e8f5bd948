"""Nothing outlives its parent: supervisor, launcher and ranks form a chain in which each dies with the one above it.

A killed parent leaves its children behind as orphans that go on training, so each process asks the kernel for the
signal itself. The kernel sends it when the thread that made the child ends, so that has to be one that lives as long as
its process.
"""

import ctypes
import os
import signal
import sys
import threading
import time

PARENT = "LONGHAUL_PARENT_PID"
PR_SET_PDEATHSIG = 1
POLL_SECONDS = 1.0


def die_with_parent(expected: int) -> None:
    """Be killed when the parent, of process id `expected`, dies, also if that has happened already. PARENT is where a
    parent puts it for a child that it does not fork itself."""
    if sys.platform == "linux":
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    else:
        threading.Thread(target=_watch, args=(expected,), daemon=True).start()
    if os.getppid() != expected:
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)
