from typing import Any

import pytest

from data.errors import InputError
from stages.pretrain.parallel.layout import Layout, layout_of
from tests.stages.pretrain import micro


def layout(num_processes: int = 1, **changes: Any) -> Layout:
    return layout_of(micro.config(num_processes=num_processes, **changes))


@pytest.mark.parametrize(
    ("processes", "changes", "expected"),
    [
        (1, {}, ("one", 1, 1)),
        (1, {"sharding": "none"}, ("one", 1, 1)),
        (1, {"sharding": "optimizer"}, ("one", 1, 1)),
        (3, {}, ("sharded", 3, 1)),
        (3, {"sharding": "gradients"}, ("sharded", 3, 1)),
        (6, {"sharding": "hybrid", "shard_processes": 2}, ("sharded", 2, 3)),
        (3, {"sharding": "optimizer"}, ("replicated", 1, 3)),
        (3, {"sharding": "none"}, ("replicated", 1, 3)),
        (1, {"offload_optimizer": True, "device": "cuda"}, ("sharded", 1, 1)),
    ],
)
def test_what_is_cut_over_how_many_processes(
    processes: int, changes: dict[str, Any], expected: tuple[str, int, int]
) -> None:
    found = layout(processes, **changes)
    assert (found.kind, found.shards, found.replicas) == expected
    assert found.shards_states_only == (changes.get("sharding") == "optimizer" and processes > 1)
    assert found.reshards_after_forward == (changes.get("sharding") != "gradients")


def test_nothing_is_gathered_ahead_without_overlap() -> None:
    assert layout(2, prefetch_layers=2).prefetch_units == 2
    assert layout(2, overlap=False).prefetch_units == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_processes": 4, "sharding": "hybrid"}, "needs pretrain.shard_processes"),
        ({"num_processes": 4, "sharding": "hybrid", "shard_processes": 3}, "num_processes = 4 is not a multiple of"),
        ({"num_processes": 4, "sharding": "hybrid", "shard_processes": 4}, 'pretrain.sharding = "full"'),
        ({"num_processes": 4, "shard_processes": 2}, 'set pretrain.sharding = "hybrid"'),
        ({"sharding": "none", "prefetch_layers": 2}, "pretrain.prefetch_layers has no effect"),
        ({"sharding": "optimizer", "layers_per_unit": 2}, "pretrain.layers_per_unit has no effect"),
        ({"sharding": "gradients", "bucket_bytes": 4096}, "pretrain.bucket_bytes has no effect"),
        ({"overlap": False, "prefetch_layers": 2}, "pretrain.prefetch_layers has no effect"),
        ({"collective_timeout_seconds": 5}, "pretrain.collective_timeout_least_seconds = 10.0 is more than"),
        ({"collective_timeout_ratio": 2}, "greater than or equal to 3"),
        ({"sharding": "zero"}, "'full', 'hybrid', 'gradients', 'optimizer' or 'none'"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_setting_to_change(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        micro.config(**changes)


def test_a_layout_that_does_not_fit_the_shape_of_the_model_is_refused() -> None:
    with pytest.raises(InputError, match=r"pretrain\.layers_per_unit = 3 is more than the 2 layers"):
        layout(2, layers_per_unit=3)
    with pytest.raises(InputError, match=r"pretrain\.num_processes = 32 is more than model\.hidden_size = 24"):
        layout(32, batch_sequences=32)
    assert layout(32, batch_sequences=32, sharding="hybrid", shard_processes=8).replicas == 4
