"""A Redis of this machine, on loopback, that keeps nothing on the disk.

    with redis() as url: ...            # redis://127.0.0.1:PORT/0

It ends with the process that started it.
"""

import contextlib
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.services.process import free_port, serving

START_SECONDS = 30.0


def reason_to_skip() -> str:
    """Why there is none here; empty where there is."""
    return "" if shutil.which("redis-server") else "Redis is not installed (apt-get install redis-server)"


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """The address of a server that is ready, and empty."""
    port = free_port()

    def ready() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        return False

    with tempfile.TemporaryDirectory(prefix="longhaul-redis-") as folder:
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
        with serving(command, ready, log=Path(folder) / "log", stop=signal.SIGTERM, seconds=START_SECONDS):
            yield f"redis://127.0.0.1:{port}/0"
