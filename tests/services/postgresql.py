"""A PostgreSQL of this machine: a cluster of its own in a temporary folder, on loopback.

    with postgresql() as url: ...       # postgresql://longhaul@127.0.0.1:PORT/prefect

It runs as a user that is not root, as it must, and ends with the process that started it.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.services.process import free_port, serving

START_SECONDS = 60.0
USER, DATABASE = "longhaul", "prefect"
ACCOUNTS = ("postgres", "nobody")  # whom it runs as where the tests run as root


def programs() -> Path | None:
    """Where PostgreSQL's programs are; None where it is not installed. Debian keeps them from the search path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


def reason_to_skip() -> str:
    """Why there is none here; empty where there is."""
    return "" if programs() else "PostgreSQL is not installed (apt-get install postgresql)"


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """The address of a server that is ready, with an empty database."""
    place = programs()
    assert place is not None, reason_to_skip()
    with tempfile.TemporaryDirectory(prefix="longhaul-postgresql-") as folder:
        data, log, port, who = Path(folder) / "data", Path(folder) / "log", free_port(), _account()
        if who:
            os.chown(folder, who["user"], who["group"])
        # Nobody else is on this loopback, and the cluster lives for minutes: no password.
        initdb: list[str | Path] = [
            place / "initdb",
            "-D",
            data,
            "-U",
            USER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-instructions",
            "-N",
        ]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, **who)
        server: list[str | Path] = [place / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", folder]
        address = ["-h", "127.0.0.1", "-p", str(port), "-U", USER]

        def ready() -> bool:
            return subprocess.run([place / "pg_isready", "-q", *address], cwd=folder).returncode == 0

        with serving(server, ready, log=log, stop=signal.SIGQUIT, seconds=START_SECONDS, **who):
            subprocess.run([place / "createdb", *address, DATABASE], check=True, cwd=folder)
            yield f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}"


def _account() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise RuntimeError(f"PostgreSQL does not run as root, and there is no account {' or '.join(ACCOUNTS)}")
