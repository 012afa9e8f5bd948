"""An S3 server of this machine, moto's, on loopback, in a process of its own.

    with s3_server() as port: ...           # s3fs: endpoint_url=f"http://127.0.0.1:{port}"

The process holds its objects in memory, dies with its parent, and ends by itself after LIFE_SECONDS.
"""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

LIFE_SECONDS = 900
MOST_BYTES = 4 << 30
PR_SET_PDEATHSIG = 1
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-west-2"}


@contextlib.contextmanager
def s3_server() -> Iterator[int]:
    """The port of a server that is ready, and empty."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.services.s3", str(os.getpid())],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **CREDENTIALS},
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the S3 server ended with {process.wait()}"
        yield int(line)
    finally:
        process.kill()
        process.wait()


def options(port: int) -> dict[str, Any]:
    """What s3fs needs to reach it, or a proxy before it."""
    return {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "secret": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        "client_kwargs": {"region_name": CREDENTIALS["AWS_DEFAULT_REGION"]},
    }


def serve(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    signal.alarm(LIFE_SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    server = make_server(
        "127.0.0.1",
        0,
        DomainDispatcherApplication(create_backend_app),
        threaded=True,
        request_handler=MotoRequestHandler,
    )
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
