"""Two processes never build one key, and a dead one holds nobody up."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import stages.lease as lease_module
from stages import kernel
from stages.errors import LeaseHeld, LeaseLost, TryAgain
from stages.lease import Lease, is_held


class Clock:
    """Time under the test's control, in seconds."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def lease(path: Path, clock: Clock) -> Lease:
    return Lease(path, clock=clock, heartbeat_seconds=3600, expiry_seconds=30, on_lost=lambda error: None)


def elsewhere(path: Path) -> None:
    """Make the holder one of another machine, of which nothing is known but its heartbeat."""
    status = path.stat()
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere/1"}))
    os.utime(path, (status.st_atime, status.st_mtime))


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
    elsewhere(path)
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
    elsewhere(path)
    with pytest.raises(LeaseHeld):
        lease(path, clock).acquire()


def test_a_live_process_of_this_machine_is_never_robbed(tmp_path: Path) -> None:
    """It may have been stopped, or starved, or the machine suspended; then it goes on writing where it was."""
    clock, path = Clock(), tmp_path / ".lease"
    owner = lease(path, clock)
    owner.acquire()
    clock.now += 1_000_000
    with pytest.raises(LeaseHeld):
        lease(path, clock).acquire()
    owner.release()


def test_a_clock_that_is_set_robs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves the time of day at which the owner was started."""
    clock, path = Clock(), tmp_path / ".lease"
    owner = lease(path, clock)
    owner.acquire()
    if kernel.started(os.getpid()) is not None:  # elsewhere the time of day of a start stays as it was
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: 12345.0)
    with pytest.raises(LeaseHeld):
        lease(path, clock).acquire()
    owner.release()


def test_process_ids_of_another_container_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, path = Clock(), tmp_path / ".lease"
    owner = lease(path, clock)
    owner.acquire()
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "same-name/other-pids", "pid": 2**22 + 1}))
    os.utime(path, (clock.now, clock.now))
    with pytest.raises(LeaseHeld):
        lease(path, clock).acquire()


LOSER = """
import sys, time
from pathlib import Path
from stages.cli import run_and_exit
from stages.lease import Lease
def work():
    with Lease(Path(sys.argv[1]), heartbeat_seconds=0.05):
        print("working", flush=True)
        time.sleep(60)
run_and_exit(work)
"""


def test_an_owner_that_lost_its_lease_ends_itself(tmp_path: Path) -> None:
    path = tmp_path / ".lease"
    with subprocess.Popen([sys.executable, "-c", LOSER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "working\n"
        path.write_text(json.dumps({**json.loads(path.read_text()), "owner": "another"}))
        assert process.wait(20) == 128 + signal.SIGTERM
    assert json.loads(path.read_text())["owner"] == "another", "the loser removed the new owner's lease"


def test_an_owner_that_lost_its_lease_ends_itself_though_nobody_reads_what_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unread(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    ends: list[tuple[int, int]] = []
    monkeypatch.setattr(lease_module, "LOST", threading.Event())
    monkeypatch.setattr(sys, "stderr", Unread())
    monkeypatch.setattr(os, "kill", lambda *end: ends.append(end))
    lease_module._end_this_process(LeaseLost("taken over"))
    assert ends == [(os.getpid(), signal.SIGTERM)] and lease_module.LOST.is_set()


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
