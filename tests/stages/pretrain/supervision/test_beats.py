"""A user relies on: what a rank says of itself is what the supervisor reads, and a process that can do nothing else
still says where it is."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stages.kernel import state_of
from stages.pretrain.supervision.beats import ALIVE_SECONDS, Beat, Beats, Heart, Phase


def test_records_are_kept_apart_and_read_as_written(tmp_path: Path) -> None:
    Beats(tmp_path / "beats", 2).close()
    beats = Beats(tmp_path / "beats", 3)
    assert (tmp_path / "beats").stat().st_blocks, "a hole, which a full disk would not let anybody fill"
    assert beats.read(1) == Beat(0, Phase.STARTING, 0, 0.0, 0, 0, 0)
    hearts = [Heart(tmp_path / "beats", slot, seconds=600) for slot in (0, 2)]
    hearts[1].beat(Phase.READING, 3, 20.0)
    hearts[1].beat(Phase.STEP, 3, 4.5)
    pid = os.getpid()
    assert replace(beats.read(0), alive=0) == Beat(pid, Phase.STARTING, 0, 600.0, 0, 0, 0)
    assert beats.read(1).pid == 0
    assert replace(beats.read(2), alive=0) == Beat(pid, Phase.STEP, 3, 4.5, 2, 0, 0)
    beats.clear([1])
    assert beats.read(1).pid == 0 and beats.read(2).pid == pid


def test_a_rank_that_waits_is_alive_and_dumps_where_it_is_and_a_stopped_one_is_not(tmp_path: Path) -> None:
    beats = Beats(tmp_path / "beats", 1)
    pid = os.fork()
    if pid == 0:
        Heart(tmp_path / "beats", 0, seconds=600, stacks=tmp_path / "stacks")
        waits_for_a_peer()
    try:
        until(lambda: beats.read(0).alive > 0)
        beats.want_dump(0, 5)
        os.kill(pid, signal.SIGUSR2)
        until(lambda: beats.read(0).dumped == 5)
        assert "waits_for_a_peer" in (tmp_path / "stacks" / "rank-0.txt").read_text()
        assert (tmp_path / "stacks" / "rank-0.json").exists()
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) == "T")
        alive = beats.read(0).alive
        time.sleep(3 * ALIVE_SECONDS)
        assert beats.read(0).alive == alive
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def waits_for_a_peer() -> None:
    while True:
        time.sleep(60)


def until(condition: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < 60
        time.sleep(0.02)
