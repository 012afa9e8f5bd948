"""Files on a store that may be slow, full, down or silent, as an fsspec URL. What is said to be written has been read
back and compared.

No call blocks its caller for longer than `stall_seconds`: each runs in a thread of its own, which is left behind when
it takes longer, and the same is tried again on a fresh connection. A call carries only as many bytes as have lately
gone through in a few seconds, so one that takes so long has stalled, however slow the link is. Attempts are counted
here and in no layer below. They go on, with growing delays, until the caller's patience or the stop of all work ends
them.
"""

import errno
import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from data.errors import InputError
from data.shards.file_system import LASTING, file_system

T = TypeVar("T")
Tell = Callable[..., None]

STALL_SECONDS = 20.0
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.2, 30.0
FIRST_BYTES, LEAST_BYTES = 4 << 20, 64 << 10
MOST_WRITTEN_BYTES, MOST_READ_BYTES = 64 << 20, 16 << 20
CALL_SECONDS = 4.0  # that the bytes of one call are to take
NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError")  # of botocore, which need not be there
OBJECT_STORES = ("s3", "gs", "abfs")  # they have no folders; what makes one there would make a bucket


class Unreachable(OSError):
    """The store has not done what it was asked within the caller's patience."""


class Stopped(Exception):
    """The work on the store was told to end."""


class Stalled(OSError):
    """A call has not come back."""


class Damaged(OSError):
    """The store gives back other bytes than it was given."""


class Pace:
    """How many bytes the next call in one direction should carry."""

    def __init__(self, most_bytes: int) -> None:
        self.bytes = FIRST_BYTES
        self._most_bytes = most_bytes

    def took(self, num_bytes: int, seconds: float) -> None:
        """A call went through. How fast more bytes would have been cannot be told from a few."""
        if seconds > CALL_SECONDS:
            self.bytes = max(int(num_bytes / seconds * CALL_SECONDS), LEAST_BYTES)
        elif num_bytes >= self.bytes and seconds < CALL_SECONDS / 2:
            self.bytes = min(2 * self.bytes, self._most_bytes)

    def stalled(self) -> None:
        self.bytes = max(self.bytes // 4, LEAST_BYTES)


class RemoteFiles:
    """Files below `url`, by relative path. Safe to use from several threads.

    `tell(kind, **fields)` is given the events store.stalled, store.failing and store.recovered, from any thread.
    `progress_at`: when, on the clock, something was last done to its end.
    """

    def __init__(
        self,
        url: str,
        *,
        tell: Tell,
        options: Mapping[str, Any] | None = None,
        stall_seconds: float = STALL_SECONDS,
        first_delay_seconds: float = FIRST_DELAY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: seconds, monotonic. Raises InputError if there is no such file system."""
        self.url = url.rstrip("/")
        self.writing, self.reading = Pace(MOST_WRITTEN_BYTES), Pace(MOST_READ_BYTES)
        self.stop = threading.Event()
        self._tell, self._clock = tell, clock
        self._options = dict(options or {})
        self._stall_seconds = stall_seconds
        self._first_delay_seconds = first_delay_seconds
        self._lock = threading.Lock()
        self._failing_since: float | None = None
        self._told: set[str] = set()
        self.progress_at = clock()
        self._files, self._root = file_system(self.url, self._options)

    def write(self, path: str, content: bytes, *, patience_seconds: float | None = None) -> None:
        """Put a file there, in one piece, and read it back. Raises Unreachable, Stopped; with patience_seconds also
        InputError, where it may not be written."""

        def put(files: Any, full: str) -> None:
            try:
                files.pipe_file(full, content)
            except FileNotFoundError as error:
                if _protocol(files) in OBJECT_STORES:
                    raise PermissionError(f"there is no such bucket: {error}") from error
                files.makedirs(full.rpartition("/")[0], exist_ok=True)
                files.pipe_file(full, content)

        def both() -> None:
            try:
                self._timed(f"write {path}", path, put, self.writing, len(content))
                found, done = hashlib.sha256(), 0
                while done < len(content) and (got := self._piece(path, done, len(content))):
                    found.update(got)
                    done += len(got)
            except FileNotFoundError as error:
                raise Damaged(f"{path} was written and is not there") from error
            if found.digest() != hashlib.sha256(content).digest():
                raise Damaged(f"{path} came back otherwise than it was written")

        self._patiently(f"write {path}", both, patience_seconds)

    def read(self, path: str, num_bytes: int, *, patience_seconds: float | None = None) -> bytearray:
        """The first bytes of a file, which may be fewer. Raises FileNotFoundError, Unreachable, Stopped."""
        found = bytearray()
        while len(found) < num_bytes:
            piece = partial(self._piece, path, len(found), num_bytes)
            got = self._patiently(f"read {path}", piece, patience_seconds)
            if not got:
                break
            found += got
        return found

    def _piece(self, path: str, start: int, end: int) -> bytes:
        """One call's worth of bytes from `start`, at most up to `end`."""
        end = min(end, start + self.reading.bytes)

        def get(files: Any, full: str) -> bytes:
            try:
                return files.cat_file(full, start=start, end=end)
            except OSError as error:  # S3 takes it for a mistake to ask for what is behind the end
                if error.errno != errno.EINVAL:
                    raise
                files.invalidate_cache()
                if files.size(full) > start:
                    raise
                return b""

        return self._timed(f"read {path}", path, get, self.reading, end - start)

    def sizes(self, path: str = "", *, patience_seconds: float | None = None) -> dict[str, int]:
        """Relative path: bytes, of all files in the folder `path` and below. Raises Unreachable, Stopped."""

        def find(files: Any, full: str) -> dict[str, int]:
            files.invalidate_cache()
            root = files._strip_protocol(self._root).rstrip("/")
            found = files.find(full, detail=True)
            return {name[len(root) :].strip("/"): entry["size"] for name, entry in found.items()}

        try:
            return self._patiently(f"list {path}", partial(self._once, f"list {path}", path, find), patience_seconds)
        except FileNotFoundError:
            return {}

    def remove(self, paths: Iterable[str], *, patience_seconds: float | None = None) -> None:
        """Delete files, in their order; those that are not there are passed over. Raises Unreachable, Stopped."""

        def delete(files: Any, full: str) -> None:
            try:
                files.rm_file(full)
            except FileNotFoundError:
                return

        for path in paths:
            what = f"delete {path}"
            self._patiently(what, partial(self._once, what, path, delete), patience_seconds)

    def _timed(self, what: str, path: str, call: Callable[[Any, str], T], pace: Pace, num_bytes: int) -> T:
        began = self._clock()
        try:
            found = self._once(what, path, call)
        except Stalled:
            pace.stalled()
            raise
        if num_bytes:
            pace.took(num_bytes, self._clock() - began)
        return found

    def _once(self, what: str, path: str, call: Callable[[Any, str], T]) -> T:
        """One call in a thread of its own. Raises what it raises, or Stalled."""
        outcome: list[Any] = []
        done = threading.Event()
        files = self._files

        def run() -> None:
            try:
                outcome.extend((True, call(files, f"{self._root}/{path}".rstrip("/"))))
            except BaseException as error:
                outcome.extend((False, error))
            done.set()

        began = self._clock()
        threading.Thread(target=run, name=f"store: {what}", daemon=True).start()
        # The clock decides, so that a machine that was asleep is not taken for a store that was.
        while not done.wait(min(self._stall_seconds, 0.2)):
            if self.stop.is_set():
                raise Stopped
            if self._clock() - began >= self._stall_seconds:
                self._reconnect(files)
                raise Stalled(f"{what}: nothing came for {self._stall_seconds:g} s")
        if not outcome[0]:
            raise outcome[1]
        return outcome[1]

    def _reconnect(self, stuck: Any) -> None:
        """The next call gets connections of its own."""
        with self._lock:
            if self._files is stuck:
                self._files, self._root = file_system(self.url, self._options)

    def _patiently(self, what: str, call: Callable[[], T], patience_seconds: float | None) -> T:
        began, delay = self._clock(), self._first_delay_seconds
        while True:
            if self.stop.is_set():
                raise Stopped
            try:
                found = call()
                self._well()
                return found
            except (Stopped, FileNotFoundError, *LASTING):
                raise
            except Exception as error:
                if patience_seconds is not None and _is_refused(error):
                    raise InputError(
                        f"pretrain.durable_url: cannot {what} in {self.url}: {error}; credentials come from the "
                        "environment (for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
                    ) from error
                self._unwell(what, error)
                if patience_seconds is not None and self._clock() - began + delay > patience_seconds:
                    raise Unreachable(f"{self.url} does not answer ({what}: {error!r})") from error
            self.stop.wait(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, LONGEST_DELAY_SECONDS)

    def _unwell(self, what: str, error: Exception) -> None:
        """Tell of the first failure and of the first stall of a time in which the store is not well."""
        kind = "store.stalled" if isinstance(error, Stalled) else "store.failing"
        with self._lock:
            new = kind not in self._told
            self._told.add(kind)
            self._failing_since = self._clock() if self._failing_since is None else self._failing_since
        if new:
            self._tell(kind, url=self.url, operation=what, error=f"{type(error).__name__}: {error}"[:500])

    def _well(self) -> None:
        self.progress_at = self._clock()
        with self._lock:
            since, self._failing_since = self._failing_since, None
            self._told.clear()
        if since is not None:
            self._tell("store.recovered", url=self.url, seconds=round(self._clock() - since, 1))


def _is_refused(error: Exception) -> bool:
    """Whether the store will not serve this user, however long it is asked."""
    return isinstance(error, PermissionError) or type(error).__name__ in NO_CREDENTIALS


def _protocol(files: Any) -> str:
    return files.protocol if isinstance(files.protocol, str) else files.protocol[0]
