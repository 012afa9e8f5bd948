"""Both executors give the same results, errors and progress."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from data.errors import InputError
from stages.executor import Executor, open_executor

REPOSITORY = Path(__file__).parents[2]
SECONDS = 120  # after which a map that hangs fails its test


@dataclass(frozen=True)
class Step:
    """A function with a table, as the passes of curation have them."""

    table: np.ndarray

    def __call__(self, item: int) -> np.ndarray:
        return self.table * item


def fail_at(bad: set[int], item: int) -> int:
    if item in bad:
        raise InputError(f"item {item}")
    return item


def alarmed(signum: int, frame: object) -> None:
    raise TimeoutError(f"nothing came of it within {SECONDS} seconds")


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, alarmed)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def sigterm() -> Any:
    """The handler as it was before Ray."""
    return signal.getsignal(signal.SIGTERM)


@pytest.fixture(scope="module")
def on_ray(sigterm: Any) -> Iterator[Executor]:
    with open_executor("ray", workers=2) as executor:
        yield executor


@pytest.fixture(params=["one thread", "three threads", "ray"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "ray":
        yield request.getfixturevalue("on_ray")
        return
    with open_executor("threads", workers=1 if request.param == "one thread" else 3) as threads:
        yield threads


def test_results_are_in_the_order_of_the_items(executor: Executor) -> None:
    items = [5, 3, 0, 9, 1, 7]
    table = np.arange(100_000)
    found = executor.map(Step(table), items)
    assert len(found) == len(items)
    assert all(np.array_equal(got, table * item) for got, item in zip(found, items, strict=True))


def test_no_items_give_no_results(executor: Executor) -> None:
    assert executor.map(abs, []) == []


def test_every_finished_item_is_told(executor: Executor) -> None:
    told: list[int] = []
    executor.map(abs, iter(range(9)), done=told.append)
    assert told[-1] == 9 and told == sorted(told)


def test_the_error_is_that_of_the_first_item_that_fails(executor: Executor) -> None:
    with pytest.raises(InputError) as caught:
        executor.map(partial(fail_at, {4, 5, 17}), range(30))
    assert type(caught.value) is InputError and str(caught.value) == "item 4"


def test_after_an_error_nothing_new_begins(executor: Executor, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        executor.map(partial(touch_or_divide, tmp_path), range(10_000))
    begun = len(list(tmp_path.iterdir()))
    time.sleep(0.2)
    assert begun == len(list(tmp_path.iterdir())) < 10_000


def touch_or_divide(folder: Path, item: int) -> float:
    (folder / str(item)).touch()
    time.sleep(0.001)
    return 1 / (item - 3)


def test_an_error_of_the_progress_ends_the_map(executor: Executor) -> None:
    def full(done: int) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        executor.map(abs, range(100), done=full)


def test_relative_paths_lead_from_the_caller(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").touch()
    monkeypatch.chdir(tmp_path)
    assert executor.map(os.path.exists, ["here", "there"]) == [True, False]


def test_the_handler_of_sigterm_stays(sigterm: Any, on_ray: Executor) -> None:
    assert signal.getsignal(signal.SIGTERM) is sigterm


KILLED = """
import os, psutil, signal
from stages.executor import open_executor
with open_executor("ray", workers=1) as executor:
    executor.map(abs, [-1])
    print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
AGENTS = ("ray::DashboardA", "ray::RuntimeEnv")  # linger for a minute; names as the kernel shortens them


@pytest.mark.slow
def test_a_cluster_ends_with_the_process_that_is_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="k", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-c", KILLED]
        environment = os.environ | {"TMPDIR": folder}
        run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        assert run.returncode == -signal.SIGKILL and run.stdout.split(), run.stderr
        began = [psutil.Process(int(pid)) for pid in run.stdout.split() if psutil.pid_exists(int(pid))]
        while any(map(works, began)):
            time.sleep(0.1)


def works(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and not process.name().startswith(AGENTS)
    except psutil.NoSuchProcess:
        return False


def test_ray_that_cannot_be_had_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"longhaul\[ray\]"), open_executor("ray", workers=1):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "nowhere", "ray://127.0.0.1:10001"])
def test_a_cluster_that_does_not_answer_is_bad_input(on_ray: Executor, address: str) -> None:
    with pytest.raises(InputError, match="ray_address"), open_executor("ray", workers=1, ray_address=address):
        pass


def test_an_error_tells_where_it_was_raised(on_ray: Executor) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        on_ray.map(partial(divmod, 1), [0])
    assert any("ZeroDivisionError" in note for note in caught.value.__notes__)
