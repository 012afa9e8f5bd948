"""Map a function over items on the threads of this machine or on a Ray cluster, by one setting.

Whatever the executor and the number of workers, the results are in the order of the items, and the error that surfaces
is that of the first item that fails, as the function raised it. So a function that depends on nothing but its item
gives the same bytes everywhere.

For Ray the function is one of a module, or a partial or a frozen dataclass around one, and the items can be pickled;
every node has the same packages and sees the same files under the same paths. A task whose node is lost runs again
elsewhere, and the lost one may still be writing: files are written under a name that no other attempt uses and renamed.
"""

import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from data.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS, RAY = "threads", "ray"
LOOPBACK = "127.0.0.1"
SWITCH_SECONDS = 2e-4  # for which a thread that comes out of a kernel waits at most for the GIL; Python's own are 5e-3
RETRIES = 3  # of a task whose process or node is lost; an error of the function itself is never tried again
QUEUED_PER_CPU = 2  # so that no core of a cluster waits for the next task, and few are lost by an error
CONNECT_SECONDS = 10
OBJECT_STORE_BYTES = 256 << 20  # of a cluster of our own, which carries only small results


def _ignore(done: int) -> None:
    pass


class Executor(Protocol):
    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        done: Callable[[int], None] = _ignore,
    ) -> list[Result]:
        """Results in the order of `items`. done: called by the calling thread with the number of finished items.

        After an error nothing new begins, what runs is waited for, and then the error is raised.
        """


@dataclass(frozen=True)
class Threads:
    """For functions that do their work in kernels that release the GIL. pool: lives as long as this, since what a
    thread has freed is at hand for that thread only."""

    pool: ThreadPoolExecutor

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        done: Callable[[int], None] = _ignore,
    ) -> list[Result]:
        futures = [self.pool.submit(function, item) for item in items]
        try:
            _count(futures, done)
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
        if error := next((error for future in futures if (error := _failed(future))), None):
            raise error
        return [future.result() for future in futures]


@contextmanager
def _switching_quickly() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _count(futures: Sequence[Future], done: Callable[[int], None]) -> None:
    """Tell how many are done, until all are or one failed."""
    for count, future in enumerate(as_completed(futures), start=1):
        if _failed(future):
            return
        done(count)


def _failed(future: Future) -> BaseException | None:
    return future.exception() if future.done() and not future.cancelled() else None


@dataclass(frozen=True)
class OnRay:
    """Plain tasks of one core each. ray: the module, connected to a cluster."""

    ray: Any

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        done: Callable[[int], None] = _ignore,
    ) -> list[Result]:
        ray = self.ray
        task = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(_call)
        shared = ray.put(function)  # once, however many tables it carries
        folder = os.getcwd()
        waiting = enumerate(items)
        running: dict[Any, int] = {}
        results: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}
        try:
            while True:
                room = 0 if errors else max(1, self._cores() * QUEUED_PER_CPU) - len(running)
                for _ in range(room):
                    if (following := next(waiting, None)) is None:
                        break
                    number, item = following
                    running[task.remote(shared, item, folder)] = number
                if not running:
                    break
                for reference in ray.wait(list(running), num_returns=1)[0]:
                    number = running.pop(reference)
                    try:
                        results[number] = ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        error.cause.add_note(str(error))  # where it was raised
                        errors[number] = error.cause
                    except ray.exceptions.RayError as error:
                        errors[number] = error
                if not errors:
                    done(len(results))
        except Exception:
            if running:  # cancelling them can bring down this process (Ray 2.60)
                ray.wait(list(running), num_returns=len(running))
            raise
        if errors:
            raise errors[min(errors)]
        return [results[number] for number in range(len(results))]

    def _cores(self) -> int:
        """Of the cluster at this moment: nodes come and go."""
        return int(self.ray.cluster_resources().get("CPU", 0))


def _call(function: Callable[[Item], Result], item: Item, folder: str) -> Result:
    """folder: of the calling process, from which relative paths lead."""
    os.chdir(folder)
    return function(item)


@contextmanager
def open_executor(kind: str, *, workers: int, ray_address: str = "") -> Iterator[Executor]:
    """kind: "threads" or "ray". workers: threads, or cores of a Ray cluster of our own, which listens on loopback only
    and ends with this process; if that is killed, two idle agents of Ray, which look for it only now and then, go a
    minute later, and its folder ray-… of logs stays among the temporary files. ray_address: host:port of a running
    cluster to use instead, all of it. Ray is opened by a thread that lives as long as the process.

    Raises InputError if Ray is not installed or the cluster cannot be reached.
    """
    if kind == THREADS:
        with _switching_quickly(), ThreadPoolExecutor(max(1, workers)) as pool:
            yield Threads(pool)
        return
    assert kind == RAY, kind
    ray = import_ray(ray_address)
    session = tempfile.mkdtemp(prefix="ray-")  # short: sockets are in it
    try:
        with _signal_handlers_kept():
            _connect(ray, workers, ray_address, session)
        try:
            yield OnRay(ray)
        finally:
            ray.shutdown()
    finally:
        shutil.rmtree(session, ignore_errors=True)


def import_ray(address: str) -> Any:
    """Ray reads these variables when it is first imported."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if not address:
        # Other users of this machine cannot run code on the cluster, and no token is written into the home folder.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if not address or _is_loopback(address):
        # Otherwise Ray replaces 127.0.0.1 by an address that other machines can reach.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError:
        raise InputError(
            'executor = "ray" needs the package ray: pip install "longhaul[ray]", or set executor = "threads"'
        ) from None
    return ray


def _connect(ray: Any, workers: int, address: str, session: str) -> None:
    quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    if not address:
        ray.init(
            num_cpus=max(1, workers),
            object_store_memory=OBJECT_STORE_BYTES,
            _node_ip_address=LOOPBACK,
            _temp_dir=session,
            **quiet,
        )
        return
    try:
        with socket.create_connection(_host_and_port(address), timeout=CONNECT_SECONDS):
            pass  # Ray itself would try for many minutes
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ray.exceptions.RayError) as error:
        raise InputError(f"no Ray cluster answers at {address} (curate.ray_address): {error}") from error


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise InputError(
            f"curate.ray_address is HOST:PORT of a Ray cluster's head, such as 10.0.0.5:6379; got {address!r}"
        )
    return host.strip("[]"), int(port)


def _is_loopback(address: str) -> bool:
    host, _ = _host_and_port(address)
    return host == "localhost" or host == "::1" or host.startswith("127.")


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Ray replaces the handler of SIGTERM by one of its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
