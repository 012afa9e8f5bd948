"""A process that behaves as a stage in trouble may: `python stub_stage.py HOW FOLDER`. Its standard output is a
journal; every process of it writes its number into FOLDER, and ticks there while it lives.

    done        ends well
    silent      says one line, and nothing more
    stubborn    the same, and ignores SIGTERM
    forks       the same, with a child in its group that ignores SIGTERM
    launches    the same, and has a child in a session of its own that ends with it, as our launcher does
    trains      two ranks; on SIGTERM asks them to leave, for which each writes a last checkpoint, then leaves
    chatty      a line every 50 ms
    killed      SIGKILL, as the kernel gives it to one that takes too much memory
    holds       ends well, but leaves a stranger that holds its pipes
    says        exit code 2, with a traceback and an error
   bars        exit code 1, after the progress bar of a library, which is one line of four megabytes
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[2])
TICK_SECONDS = 0.05


def line(kind: str, **fields: object) -> None:
    print(json.dumps({"stage": "stub", "kind": kind, **fields}), flush=True)


def live(name: str, *, ends: float = 60.0) -> None:
    """Tick until killed."""
    (FOLDER / f"{name}.pid").write_text(str(os.getpid()))
    until = time.monotonic() + ends
    while time.monotonic() < until:
        (FOLDER / f"{name}.tick").write_text(str(time.time()))
        time.sleep(TICK_SECONDS)


def child(name: str, how: str, **more: object) -> subprocess.Popen[bytes]:
    made = subprocess.Popen([sys.executable, __file__, how, str(FOLDER), name], **more)  # type: ignore[call-overload]
    while not (FOLDER / f"{name}.pid").exists():
        time.sleep(0.01)
    return made


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def with_parent() -> None:
    """As the launcher of a training: the kernel ends it with its parent."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def rank(name: str) -> None:
    """Trains until it is asked to leave, and takes a moment for its last checkpoint."""
    with_parent()
    ignore_sigterm()
    (FOLDER / f"{name}.pid").write_text(str(os.getpid()))
    while not (FOLDER / "leave").exists():
        (FOLDER / f"{name}.tick").write_text(str(time.time()))
        time.sleep(TICK_SECONDS)
    time.sleep(0.3)
    (FOLDER / f"{name}.checkpoint").write_text("whole")


def trains() -> None:
    ranks = [child(f"rank-{number}", "rank", start_new_session=True) for number in range(2)]

    def leave(*_: object) -> None:
        (FOLDER / "leave").touch()

    signal.signal(signal.SIGTERM, leave)
    line("stage.started", key="0" * 12)
    (FOLDER / "ready").touch()
    for each in ranks:
        each.wait()
    print("error: stopped on request; the same command goes on from there", file=sys.stderr)
    sys.exit(75)


def main(how: str) -> None:
    if how == "rank":
        rank(sys.argv[3])
    elif how == "child":
        ignore_sigterm()
        live(sys.argv[3])
    elif how == "follower":
        with_parent()
        live(sys.argv[3])
    elif how == "trains":
        trains()
    elif how == "chatty":
        for number in range(40):
            line("progress", name="work", done=number, total=40, unit="steps")
            time.sleep(TICK_SECONDS)
    elif how == "killed":
        line("stage.started", key="0" * 12)
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "holds":
        child("stranger", "child", start_new_session=True)
    elif how == "says":
        print("Traceback (most recent call last):\n  somewhere\nerror: set this, not that", file=sys.stderr)
        sys.exit(2)
    elif how == "bars":
        for done in range(40_000):
            sys.stderr.write(f"\rreading {done:>9} of {40_000:>9} {'#' * 70}")
        print("\rerror: the disk is away", file=sys.stderr)
        sys.exit(1)
    elif how != "done":
        if how == "stubborn":
            ignore_sigterm()
        line("stage.started", key="0" * 12)
        if how == "forks":
            child("forked", "child")
        if how == "launches":
            child("launched", "follower", start_new_session=True)
        live("stub")


if __name__ == "__main__":
    main(sys.argv[1])
