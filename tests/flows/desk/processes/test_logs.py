"""Logs move on, stay bounded, and lose nothing while there is room."""

import errno
import shutil
from pathlib import Path

import pytest

from flows.desk.processes.logs import rotate


def test_long_logs_move_on_and_lose_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with open(log, "a") as writer:
        for turn in range(5):
            writer.write(f"{turn}" * 100)
            writer.flush()
            rotate(tmp_path, most_bytes=50, kept=3)
    assert log.read_text() == ""
    assert [Path(f"{log}.{number}").read_text()[0] for number in (1, 2, 3)] == ["4", "3", "2"]
    assert not Path(f"{log}.4").exists()


def test_a_disk_that_is_full_keeps_the_older_logs_and_cuts_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    log, older = tmp_path / "server.log", tmp_path / "server.log.1"
    log.write_text("2" * 100)
    older.write_text("1" * 100)
    monkeypatch.setattr(shutil, "copyfile", no_room)
    rotate(tmp_path, most_bytes=50, kept=3)
    assert older.read_text() == "1" * 100 and log.read_text() == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.log", "server.log.1"]
