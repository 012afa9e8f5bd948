"""A lease on a key: two processes never build one artifact.

The lease is a file that names its owner; the owner's heartbeat is the file's modification time. It passes on at once
when its owner ran on this machine and is dead, so that a restart after a kill does not wait; while that process
lives, however slowly, the lease is its own. An owner elsewhere has lost it when the heartbeat is older than
`expiry_seconds`; it finds out at its next heartbeat and ends itself. Every look and every change happens under flock
on the file itself.
"""

import fcntl
import json
import os
import platform
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil

from stages import kernel
from stages.errors import LeaseHeld, LeaseLost

HEARTBEAT_SECONDS = 5.0
EXPIRY_SECONDS = 30.0

# Set once a lease of this process was lost: it must not even take the time to leave in good order.
LOST = threading.Event()

Clock = Callable[[], float]


class Lease:
    """Held from `acquire` to `release`; a thread keeps the heartbeat."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock = time.time,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        expiry_seconds: float = EXPIRY_SECONDS,
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> None:
        self.path = path
        self._clock = clock
        self._heartbeat_seconds = heartbeat_seconds
        self._expiry_seconds = expiry_seconds
        self._on_lost = on_lost or _end_this_process
        self._owner = {
            "owner": uuid.uuid4().hex,
            "host": _host(),
            "pid": os.getpid(),
            "process_started": _started(os.getpid()),
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {path.name}", daemon=True)

    def __enter__(self) -> "Lease":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Raises LeaseHeld, naming the holder, while another live process holds the lease."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked(create=True) as descriptor:
            holder = _read(descriptor)
            if holder and not self._is_stale(holder, descriptor):
                raise LeaseHeld(
                    f"{self.path.name} is held by process {holder['pid']} on {holder['host'].split('/')[0]}, "
                    "which builds the same artifact; wait for it, or run the same command with --wait"
                )
            _write(descriptor, self._owner)
            self._touch()
        self._thread.start()

    def beat(self) -> None:
        """Renew the heartbeat; raises LeaseLost if another process has taken over."""
        with self._locked() as descriptor:
            self._require_ours(descriptor)
            self._touch()

    @contextmanager
    def confirmed(self) -> Iterator[None]:
        """A block in which the lease is certainly ours, since nobody can take it over meanwhile. Raises LeaseLost if
        it is not."""
        with self._locked() as descriptor:
            self._require_ours(descriptor)
            yield

    def release(self) -> None:
        """Give the lease back; a lease that was lost is left to its new owner."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            with self.confirmed():
                self.path.unlink()
        except LeaseLost:
            return

    def _beat(self) -> None:
        while not self._stop.wait(self._heartbeat_seconds):
            try:
                self.beat()
            except LeaseLost as error:
                self._on_lost(error)
                return
            except OSError:
                continue  # a file system that is away for a moment; the lease stands until it expires

    def _touch(self) -> None:
        now = self._clock()
        os.utime(self.path, (now, now))

    def _require_ours(self, descriptor: int) -> None:
        holder = _read(descriptor)
        if not holder or holder["owner"] != self._owner["owner"]:
            raise LeaseLost(
                f"{self.path.name} was taken over while this process was not heard of; the new owner goes on with it"
            )

    def _is_stale(self, holder: dict, descriptor: int) -> bool:
        if holder["host"] == _host():
            return not _is_alive(holder["pid"], holder["process_started"])
        return self._clock() - os.fstat(descriptor).st_mtime > self._expiry_seconds

    @contextmanager
    def _locked(self, *, create: bool = False) -> Iterator[int]:
        while True:
            try:
                descriptor = os.open(self.path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)
            except FileNotFoundError:
                raise LeaseLost(f"{self.path.name} is gone: another process took it over and has ended") from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is_current(self.path, descriptor):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)


def is_held(path: Path, clock: Clock = time.time) -> bool:
    """Whether a live process holds the lease at `path`; the file of a dead one is removed."""
    lease = Lease(path, clock=clock)
    try:
        with lease._locked() as descriptor:
            holder = _read(descriptor)
            held = bool(holder) and not lease._is_stale(holder, descriptor)
            if not held:
                path.unlink(missing_ok=True)
            return held
    except LeaseLost:
        return False


def _end_this_process(error: LeaseLost) -> None:
    """The new owner works in the same directory, so the old one must not go on: leave through every `finally`."""
    LOST.set()
    with suppress(OSError):  # nobody may be reading any more
        print(f"error: {error}", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)


def _is_current(path: Path, descriptor: int) -> bool:
    """Whether the file that was locked is still the one of that name: its last owner may have removed it."""
    try:
        return os.fstat(descriptor).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> dict:
    """The owner's record; empty for a file just made, or torn by a kill while it was written, which is as good as
    free."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        return json.loads(os.read(descriptor, 4096) or b"{}")
    except ValueError:
        return {}


def _write(descriptor: int, owner: dict) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(owner).encode())


def _is_alive(pid: int, process_started: float) -> bool:
    try:
        return _started(pid) == process_started and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _started(pid: int) -> float:
    """When a process was started. Since boot where the kernel says so: the time of day that follows from it moves when
    the clock is set, also for a process that is already running."""
    since_boot = kernel.started(pid)
    return psutil.Process(pid).create_time() if since_boot is None else since_boot


@cache
def _host() -> str:
    """Names this machine since its last boot, and the process ids that are valid here: they mean nothing in another
    container, on another machine, or after a boot."""
    try:
        place = kernel.boot_id() + os.readlink("/proc/self/ns/pid")
    except OSError:
        place = str(round(psutil.boot_time()))
    return f"{platform.node()}/{place}"
