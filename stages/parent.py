"""No process outlives the one that started it by more than a given time.

The kernel can send SIGTERM at that moment, but Python acts on it between two of its own instructions only: a stage that
is inside a library's loop for an hour would work on for nobody.
"""

import os
import signal
import threading
import time

POLL_SECONDS = 1.0


def end_after_parent(seconds: float, *, poll_seconds: float = POLL_SECONDS) -> None:
    """From the end of this process's parent on it has `seconds` to leave by itself; then its process group is killed.
    A thread looks every second, which costs microseconds."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(poll_seconds)
        time.sleep(seconds)
        leads = os.getpgid(0) == os.getpid()
        os.kill(-os.getpid() if leads else os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()
