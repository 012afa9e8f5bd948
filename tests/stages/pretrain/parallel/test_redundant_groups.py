import pytest
from pydantic import ValidationError

from stages.pretrain.parallel.layout import layout_of
from stages.pretrain.parallel.redundant_groups import Place, num_groups, of_group
from tests.stages.pretrain import micro


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"num_processes": 2, "sharding": "full"}, ["pretrain.redundant", "pretrain.sharding"]),
        ({"num_processes": 2, "sharding": "optimizer"}, ["pretrain.redundant", "pretrain.sharding"]),
        ({"num_processes": 1, "sharding": "none"}, ["pretrain.redundant", "pretrain.num_processes"]),
        (
            {"num_processes": 2, "sharding": "none", "least_processes": 1},
            ["pretrain.redundant", "pretrain.least_processes"],
        ),
    ],
)
def test_what_redundancy_does_not_go_with_is_refused_by_name(settings: dict[str, object], names: list[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        micro.config(redundant=True, **settings)
    assert all(name in str(refused.value) for name in names)


@pytest.mark.parametrize(
    ("settings", "groups", "layout"),
    [
        ({"num_processes": 3, "sharding": "none"}, 3, ("one", 1, 1)),
        ({"num_processes": 6, "sharding": "hybrid", "shard_processes": 2}, 3, ("sharded", 2, 1)),
    ],
)
def test_a_group_is_a_world_without_replicas(
    settings: dict[str, object], groups: int, layout: tuple[str, int, int]
) -> None:
    config = micro.config(redundant=True, **settings)
    assert num_groups(config) == groups
    found = layout_of(of_group(config))
    assert (found.kind, found.shards, found.replicas) == layout


def test_a_rank_finds_its_group_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Place(0, False).variables():
        monkeypatch.delenv(name, raising=False)
    assert Place.here() is None
    for place in (Place(0, False), Place(2, True)):
        for name, value in place.variables().items():
            monkeypatch.setenv(name, value)
        assert Place.here() == place
