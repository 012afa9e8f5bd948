"""A disk that fills and empties: each change is told once."""

from pathlib import Path

import pytest

from flows.desk.watch.disk import Disks, Space, spaces

GB = 10**9


def space(free_gb: float, total_gb: float = 100.0, path: str = "/store") -> Space:
    return Space(path=path, device=1, free_bytes=int(free_gb * GB), total_bytes=int(total_gb * GB))


def told(disks: Disks, *free_gb: float) -> list[bool]:
    return [change.low for free in free_gb for change in disks.look([space(free)])]


def test_full_and_recovered_are_told_once_with_a_band_between() -> None:
    disks = Disks(0.05, 2 * GB)
    assert told(disks, 50, 5.1) == []
    assert told(disks, 4.9, 4, 5.1, 6.2, 4.9, 0) == [True]
    assert told(disks, 6.2, 6.3, 5.1, 50) == [False]
    assert told(disks, 4.9, 7) == [True, False]


@pytest.mark.parametrize(
    ("share", "least", "free", "low"), [(0.05, 0, 6, False), (0, 7 * GB, 6, True), (0, 0, 0, False)]
)
def test_either_limit_counts_and_none_is_none(share: float, least: float, free: float, low: bool) -> None:
    assert told(Disks(share, least), free) == [True] * low


def test_what_was_told_before_is_not_told_again() -> None:
    disks = Disks(0.05, 0, low=["/store"])
    assert told(disks, 1, 2) == [] and told(disks, 50) == [False]


def test_two_file_systems_do_not_mix() -> None:
    disks = Disks(0.05, 0)
    (change,) = disks.look([space(50), space(1, path="/home")])
    assert change.low and change.space.path == "/home" and "1.0 GB of 100 GB" in change.text
    assert disks.look([space(1), space(1, path="/home")])[0].space.path == "/store"


def test_the_file_systems_of_this_machine(tmp_path: Path) -> None:
    (found,) = spaces([tmp_path, tmp_path / "not" / "yet"])
    assert found.path == str(tmp_path) and 0 < found.free_bytes <= found.total_bytes
