"""Two processes never build one key, and a dead one holds nobody up."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stages.errors import LeaseLost, TryAgain
from stages.lease import Lease, is_held


class Clock:
    """Time under the test's control, in seconds."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def lease(path: Path, clock: Clock) -> Lease:
    return Lease(path, clock=clock, heartbeat_seconds=3600, expiry_seconds=30)


def test_a_second_owner_is_refused_with_the_holder_named(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / ".lease"
    first = lease(path, clock)
    first.acquire()
    with pytest.raises(TryAgain, match=f"held by process {os.getpid()}.*--wait"):
        lease(path, clock).acquire()
    first.release()
    assert not path.exists()
    second = lease(path, clock)
    second.acquire()
    second.release()


def test_takeover_after_expiry_and_the_old_owner_notices(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / ".lease"
    old, new = lease(path, clock), lease(path, clock)
    old.acquire()
    clock.now += 29
    with pytest.raises(TryAgain):
        new.acquire()
    clock.now += 2
    new.acquire()
    with pytest.raises(LeaseLost):
        old.beat()
    with pytest.raises(LeaseLost), old.confirmed():
        pytest.fail("a lost lease must not be confirmed")
    old.release()
    with new.confirmed():
        assert path.exists(), "the old owner removed the new owner's lease"
    new.release()


def test_a_heartbeat_keeps_the_lease(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / ".lease"
    owner = lease(path, clock)
    owner.acquire()
    for _ in range(5):
        clock.now += 20
        owner.beat()
    with pytest.raises(TryAgain):
        lease(path, clock).acquire()
    owner.release()


def test_the_heartbeat_thread_runs(tmp_path: Path) -> None:
    path = tmp_path / ".lease"
    owner = Lease(path, heartbeat_seconds=0.02)
    owner.acquire()
    os.utime(path, (0, 0))
    deadline = time.monotonic() + 10
    while path.stat().st_mtime == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert path.stat().st_mtime > 0
    owner.release()


def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / ".lease"
    lines = (
        "import os",
        "from pathlib import Path",
        "from stages.lease import Lease",
        f"lease = Lease(Path({str(path)!r}))",
    )
    code = "; ".join((*lines, "lease.acquire()", "os.kill(os.getpid(), 9)"))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert path.exists()
    owner = Lease(path)
    owner.acquire()
    owner.release()


def test_a_record_that_a_kill_tore_is_free(tmp_path: Path) -> None:
    path = tmp_path / ".lease"
    path.write_text('{"owner": "a')
    assert not is_held(path)
    assert not path.exists()


def test_one_winner_among_many(tmp_path: Path) -> None:
    path, winners = tmp_path / ".lease", []
    path.write_text("{}")
    barrier = threading.Barrier(16)

    def compete() -> None:
        mine = Lease(path)
        barrier.wait()
        try:
            mine.acquire()
        except TryAgain:
            return
        winners.append(mine)

    threads = [threading.Thread(target=compete) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    winners[0].release()
