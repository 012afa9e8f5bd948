"""A user relies on: a stage that hangs or takes too long is stopped with a word on what to do, what is cancelled takes
its last checkpoint and is gone, and no process of a stage outlives it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows import process, sigterm
from flows.process import Limits, OutOfMemory, StageFailed, StageOverdue, StageStalled, run_process
from stages import kernel
from stages.errors import BAD_INPUT, FAILED, TRY_AGAIN

STUB = Path(__file__).with_name("stub_stage.py")
LIMIT_SECONDS = 60.0
Events = list[dict[str, Any]]


def command(how: str, folder: Path) -> list[str]:
    return [sys.executable, str(STUB), how, str(folder)]


def run(how: str, folder: Path, **limits: Any) -> Events:
    events: Events = []
    asyncio.run(run_process("stub", command(how, folder), events.append, limits=Limits(**limits)))
    return events


def survivors(folder: Path) -> list[str]:
    """Names of the processes of a stub that are still there, after what has been killed has had time to go."""
    pids = {path.stem: int(path.read_text()) for path in folder.glob("*.pid")}
    until = time.monotonic() + 5
    while time.monotonic() < until and any(map(is_alive, pids.values())):
        time.sleep(0.02)
    return [name for name, pid in pids.items() if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(path: Path) -> None:
    until = time.monotonic() + LIMIT_SECONDS
    while not path.exists():
        assert time.monotonic() < until, f"{path} has not come"
        time.sleep(0.01)


def test_a_stage_that_works_is_left_alone(tmp_path: Path) -> None:
    """It takes several times as long as it may be silent."""
    assert len(run("chatty", tmp_path, stall=1.5)) == 40


@pytest.mark.parametrize("how", ["silent", "stubborn", "forks", "launches"])
def test_a_silent_stage_is_brought_down_with_all_its_processes(tmp_path: Path, how: str) -> None:
    with pytest.raises(StageStalled) as failed:
        run(how, tmp_path, stall=0.3, grace=0.5)
    assert failed.value.exit_code == TRY_AGAIN
    assert "no line in its journal for 0.3 s" in str(failed.value)
    assert '"kind": "stage.started"' in failed.value.summary and "run.stall_minutes" in failed.value.summary
    assert survivors(tmp_path) == []


def test_a_stage_has_its_deadline_however_much_it_says(tmp_path: Path) -> None:
    with pytest.raises(StageOverdue, match=r"run\.deadline_hours") as failed:
        run("chatty", tmp_path, deadline=0.6, grace=5)
    assert failed.value.exit_code == FAILED and '"kind": "progress"' in failed.value.summary


def test_a_flow_that_slept_does_not_take_that_for_the_silence_of_the_stage(tmp_path: Path) -> None:
    """Its clock jumps; what the stage has said meanwhile stands in the pipe."""
    jumped: list[float] = [0.0]

    def on_event(event: dict[str, Any]) -> None:
        if event["done"] == 10:
            time.sleep(0.5)  # nothing is read meanwhile
            jumped[0] = 1000.0

    asyncio.run(
        run_process(
            "stub",
            command("chatty", tmp_path),
            on_event,
            limits=Limits(stall=2.0),
            clock=lambda: time.monotonic() + jumped[0],
        )
    )


def test_a_failure_says_how_and_what_the_stage_said_last(tmp_path: Path) -> None:
    with pytest.raises(StageFailed) as failed:
        run("says", tmp_path)
    assert failed.value.exit_code == BAD_INPUT
    assert failed.value.summary == "stub failed (exit code 2): set this, not that"
    first, *rest = str(failed.value).splitlines()
    assert first == failed.value.summary and "Traceback (most recent call last):" in rest


def test_of_a_progress_bar_the_last_state_is_kept(tmp_path: Path) -> None:
    with pytest.raises(StageFailed) as failed:
        run("bars", tmp_path)
    assert str(failed.value) == "stub failed (exit code 1): the disk is away"


@pytest.mark.parametrize(("kills", "kind", "words"), [(1, OutOfMemory, "lower this"), (0, StageFailed, "SIGKILL")])
def test_a_kill_for_want_of_memory_is_told_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, kind: type[StageFailed], words: str
) -> None:
    counter = tmp_path / "vmstat"
    counter.write_text("pgfault 7\noom_kill 4\n")
    monkeypatch.setattr(kernel, "_counters", lambda: (counter,))

    def on_event(event: dict[str, Any]) -> None:
        counter.write_text(f"pgfault 9\noom_kill {4 + kills}\n")

    with pytest.raises(StageFailed, match=words) as failed:
        asyncio.run(run_process("stub", command("killed", tmp_path), on_event, limits=Limits(lower="lower this")))
    assert type(failed.value) is kind
    assert failed.value.exit_code == (BAD_INPUT if kills else -signal.SIGKILL)


def test_a_stranger_that_holds_the_pipes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "DRAIN_SECONDS", 0.3)
    began = time.monotonic()
    run("holds", tmp_path)
    assert time.monotonic() - began < LIMIT_SECONDS / 2, "a stranger lives for a minute"
    (stranger,) = survivors(tmp_path)
    os.kill(int((tmp_path / f"{stranger}.pid").read_text()), signal.SIGKILL)


def test_what_a_listener_raises_ends_the_stage(tmp_path: Path) -> None:
    def on_event(event: dict[str, Any]) -> None:
        raise LookupError("nobody takes this")

    with pytest.raises(LookupError):
        asyncio.run(run_process("stub", command("silent", tmp_path), on_event, limits=Limits(grace=1)))
    assert survivors(tmp_path) == []


class Terminated(BaseException):
    """What Prefect's handler of SIGTERM raises."""


@pytest.fixture
def handler() -> Any:
    """As Prefect's: it raises in the main thread, wherever that is."""

    def raise_it(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, raise_it)
    yield raise_it
    signal.signal(signal.SIGTERM, before)


def stop_when(path: Path, how: Callable[[], None]) -> threading.Thread:
    def wait() -> None:
        wait_for(path)
        how()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def cancelled(flow: Callable[[], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def main() -> None:
        running = asyncio.create_task(flow())
        await asyncio.to_thread(wait_for, folder / "ready")
        running.cancel()
        await running

    asyncio.run(main())


@pytest.mark.parametrize("how", ["SIGTERM", "cancel"])
def test_what_is_cancelled_takes_its_last_checkpoint_and_is_gone(tmp_path: Path, handler: Any, how: str) -> None:
    """Two ranks, each in a session of its own: SIGTERM from the worker of Prefect, and a flow that is cancelled."""

    async def flow() -> None:
        await run_process("stub", command("trains", tmp_path), lambda event: None)

    if how == "cancel":
        with pytest.raises(asyncio.CancelledError):
            cancelled(flow, tmp_path)
    else:
        stop_when(tmp_path / "ready", lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Terminated):
            asyncio.run(flow())
    assert [(tmp_path / f"rank-{number}.checkpoint").read_text() for number in range(2)] == ["whole", "whole"]
    assert survivors(tmp_path) == []
    assert signal.getsignal(signal.SIGTERM) is handler, "Prefect's own handler is there again"


def test_prefect_knows_the_handler_as_its_own(tmp_path: Path) -> None:
    """Else a run that is cancelled is reported as crashed."""
    from prefect.utilities import engine

    with engine.capture_sigterm():
        own = signal.getsignal(signal.SIGTERM)

        async def flow() -> None:
            def on_event(event: dict[str, Any]) -> None:
                assert signal.getsignal(signal.SIGTERM) is not own and engine.can_ack_control_intent()

            await run_process("stub", command("chatty", tmp_path), on_event)

        asyncio.run(flow())
        assert signal.getsignal(signal.SIGTERM) is own and engine.can_ack_control_intent()


def test_a_signal_is_not_lost_in_a_callback_and_reaches_every_stage(tmp_path: Path, handler: Any) -> None:
    """Two stages at once; the signal comes while the loop is inside a callback, where what a handler raises would be
    logged and forgotten."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()

    async def flow() -> None:
        async def one(folder: Path) -> None:
            await run_process("stub", command("trains", folder), lambda event: None)

        running = [asyncio.create_task(one(folder)) for folder in folders]
        for folder in folders:
            await asyncio.to_thread(wait_for, folder / "ready")
        asyncio.get_running_loop().call_soon(lambda: os.kill(os.getpid(), signal.SIGTERM))
        ended = await asyncio.gather(*running, return_exceptions=True)
        assert [type(each) for each in ended] == [Terminated, Terminated]

    asyncio.run(flow())
    for folder in folders:
        assert len(list(folder.glob("*.checkpoint"))) == 2 and survivors(folder) == []
    assert sigterm._noting.wakes == []


def test_a_signal_at_the_very_end_is_not_lost(handler: Any) -> None:
    """The loop has no turn any more in which it could be noted."""

    async def flow() -> None:
        with sigterm.noting_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated):
        asyncio.run(flow())
    assert signal.getsignal(signal.SIGTERM) is handler


FLOW = """
import asyncio, sys
from flows.process import Limits, run_process
command = [sys.executable, *sys.argv[1:]]
asyncio.run(run_process("stub", command, lambda event: None, limits=Limits(grace=0.5)))
"""


def test_nothing_outlives_a_flow_that_is_killed(tmp_path: Path) -> None:
    flow = subprocess.Popen([sys.executable, "-c", FLOW, str(STUB), "launches", str(tmp_path)])
    wait_for(tmp_path / "launched.tick")
    flow.kill()
    flow.wait()
    assert survivors(tmp_path) == []


BUSY = """
import ctypes, sys, pathlib, os
from stages.parent import end_after_parent
end_after_parent(0.2, poll_seconds=0.05)
pathlib.Path(sys.argv[1], "busy.pid").write_text(str(os.getpid()))
pathlib.Path(sys.argv[1], "busy.tick").touch()
ctypes.CDLL(None).sleep(60)  # in a library: no handler of Python's runs
"""
PARENT = """
import signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], start_new_session=True).wait()
"""


def test_a_stage_inside_a_library_does_not_outlive_its_flow(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, BUSY, str(tmp_path)])
    wait_for(tmp_path / "busy.tick")
    parent.kill()
    parent.wait()
    assert survivors(tmp_path) == []
