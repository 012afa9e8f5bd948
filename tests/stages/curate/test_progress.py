"""While parts are read, the shards that appear are told, each number once."""

import time
from pathlib import Path

from stages.curate.progress import watched
from stages.curate.shard import DONE


def test_shards_are_told_as_they_appear(tmp_path: Path):
    told: list[int] = []

    def wait_for(count: int) -> None:
        until = time.monotonic() + 20
        while told[-1:] != [count] and time.monotonic() < until:
            time.sleep(0.001)

    with watched(tmp_path / "read", told.append, interval_seconds=0.001):
        for number, name in enumerate(("000000/000000", "000001/000000", "000000/000001"), start=1):
            (tmp_path / "read" / name).mkdir(parents=True)
            (tmp_path / "read" / "000000" / ".being-written").mkdir(exist_ok=True)
            wait_for(number)
        (tmp_path / "read" / "000000" / DONE).touch()
        (tmp_path / "read" / "000001" / "000001").mkdir()
        wait_for(4)
    assert told == [1, 2, 3, 4]
