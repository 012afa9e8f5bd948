"""What `up` does where the server does not come: it ends what it has begun, and nothing else."""

import signal
from pathlib import Path
from typing import Any

import pytest

from flows.desk.processes import commands
from flows.desk.processes.state import write_state
from flows.desk.settings import DeskSettings
from stages.errors import TryAgain

SETTINGS = DeskSettings()


class Keeper:
    """Lives until it is told to stop."""

    pid = 1

    def __init__(self) -> None:
        self.alive = True
        self.told: list[signal.Signals] = []

    def signal(self, number: signal.Signals) -> None:
        self.told.append(number)
        self.alive = False


def wait(keeper: Any, home: Path, *, is_new: bool) -> None:
    commands._wait_until_healthy(SETTINGS, keeper, home, is_new)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    keeper = Keeper()
    monkeypatch.setattr(commands, "keeper_of", lambda home: keeper if keeper.alive else None)
    monkeypatch.setattr(commands, "is_healthy", lambda url: True)
    return keeper


def test_a_new_desk_whose_server_dies_again_and_again_is_ended(keeper: Any, tmp_path: Path) -> None:
    write_state(tmp_path, "", {}, {"server": 3})
    (tmp_path / "server.log").write_text("no such table")
    with pytest.raises(TryAgain, match="no such table"):
        wait(keeper, tmp_path, is_new=True)
    assert keeper.told == [signal.SIGTERM]


def test_a_desk_that_was_there_goes_on_with_its_flow_runs(keeper: Any, tmp_path: Path) -> None:
    write_state(tmp_path, "", {}, {"server": 3})
    with pytest.raises(TryAgain, match="goes on trying"):
        wait(keeper, tmp_path, is_new=False)
    assert keeper.told == []


def test_a_server_that_is_still_to_be_replaced_does_not_count(
    keeper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, and the keeper has not come to it yet."""
    monkeypatch.setattr(commands, "START_SECONDS", 0.3)
    write_state(tmp_path, "", {}, {})
    with pytest.raises(TryAgain):
        wait(keeper, tmp_path, is_new=False)
    process = commands.Process(pid=1, started=0.0, boot="")
    write_state(tmp_path, "", {"server": process}, {})
    wait(keeper, tmp_path, is_new=False)
