"""A user relies on: an elastic run uses what there is, in whole groups, and never fewer processes than asked for."""

from pathlib import Path
from typing import Any

import pytest

from stages.pretrain.supervision import capacity
from stages.pretrain.supervision.capacity import Capacity, usable, with_processes
from tests.stages.pretrain import micro

HYBRID = {"num_processes": 6, "sharding": "hybrid", "shard_processes": 2}


@pytest.mark.parametrize(
    ("settings", "limits", "number"),
    [
        ({"num_processes": 4}, {}, 4),
        ({"num_processes": 4}, {"told": 3}, 0),
        ({"num_processes": 4, "least_processes": 2}, {"told": 3}, 3),
        ({"num_processes": 4, "least_processes": 2}, {"told": 9}, 4),
        ({"num_processes": 4, "least_processes": 2}, {"gpus": 3, "suspected": {1}}, 2),
        ({"num_processes": 4, "least_processes": 2}, {"told": 1}, 0),
        ({"num_processes": 4, "least_processes": 1}, {"told": 0}, 0),
        ({**HYBRID, "least_processes": 2}, {"told": 5}, 4),
        ({**HYBRID, "least_processes": 2}, {"suspected": {0, 1, 5}}, 2),
        ({**HYBRID, "least_processes": 4}, {"told": 3}, 0),
    ],
)
def test_how_many_processes_can_run(settings: dict[str, Any], limits: dict[str, Any], number: int) -> None:
    assert usable(micro.config(**settings), **limits) == number


def test_one_group_of_hybrid_sharding_is_a_world_that_is_fully_sharded() -> None:
    config = micro.config(**HYBRID)
    assert with_processes(config, 6) is config
    assert with_processes(config, 4).sharding == "hybrid"
    one = with_processes(config, 2)
    assert (one.sharding, one.shard_processes, one.num_processes) == ("full", None, 2)


def test_a_run_that_is_not_elastic_asks_nothing(tmp_path: Path) -> None:
    (tmp_path / "processes").write_text("1")
    fixed = Capacity(micro.config(num_processes=3), tmp_path / "processes")
    assert fixed.possible() == 3 and not fixed.may_lose_another()


def test_the_file_counts_while_it_is_there_and_one_without_a_number_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "processes"
    elastic = Capacity(micro.config(num_processes=3, least_processes=2), file)
    file.write_text("two")
    assert elastic.possible() == 3
    file.write_text("2\n")
    assert elastic.possible() == 2
    file.write_text("")
    assert elastic.possible() == 2
    file.write_text("1")
    assert elastic.possible() == 0 and f"the file {file} says 1" in elastic.too_few()
    file.unlink()
    assert elastic.possible() == 3


def test_a_place_that_is_not_trusted_stays_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(capacity.VISIBLE, "4,5,6")
    elastic = Capacity(micro.config(num_processes=3, least_processes=2, device="cuda"), tmp_path / "processes")
    assert elastic.variables() == {} and elastic.may_lose_another()
    elastic.suspected.add(elastic.place_of(1))
    assert elastic.variables() == {capacity.VISIBLE: "4,6"} and not elastic.may_lose_another()
    assert [elastic.place_of(rank) for rank in (0, 1)] == [0, 2]
