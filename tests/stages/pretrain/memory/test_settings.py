"""A user relies on: a setting of the memory that has no effect, or that cannot be, is refused by name."""

from typing import Any

import pytest

from stages.pretrain.config import PretrainConfig
from stages.pretrain.memory.settings import MemorySettings
from stages.pretrain.supervision.attempt import environment


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"recompute_keep": ("matmul",)}, 'recompute_keep has no effect without pretrain.recompute = "operators"'),
        ({"recompute_kept_share": 0.3}, 'recompute_kept_share has no effect without pretrain.recompute = "budget"'),
        ({"recompute": "operators", "recompute_keep": ()}, 'that is pretrain.recompute = "full"'),
        ({"recompute": "operators", "recompute_keep": ("matmul", "matmul")}, "names something twice"),
        ({"allocator_split_mib": 20}, "pretrain.allocator_split_mib = 20 must be above 20"),
        ({"precision": "bf8"}, "precision"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MemorySettings(**settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"precision": "fp8", "device": "cpu"}, 'precision = "fp8" needs a Hopper GPU'),
        ({"offload_optimizer": True, "device": "cpu"}, "offload_optimizer has no effect"),
        ({"expandable_segments": False, "device": "cpu"}, "expandable_segments has no effect"),
        ({"allocator_split_mib": 64, "device": "cpu"}, "allocator_split_mib has no effect"),
        ({"offload_optimizer": True, "sharding": "optimizer"}, 'does not go with pretrain.sharding = "optimizer"'),
    ],
)
def test_what_device_or_layout_cannot_have_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PretrainConfig(**settings)
    PretrainConfig(**{**settings, "device": "cuda", "sharding": "full"})


def test_the_allocator_is_told_by_torchs_variable_where_the_user_has_not_set_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)

    def told(**settings: Any) -> str | None:
        return environment(PretrainConfig(**settings)).get("PYTORCH_ALLOC_CONF")

    assert told() == "expandable_segments:True"
    assert told(device="cpu") is None
    assert told(expandable_segments=False) is None
    assert told(expandable_segments=False, allocator_split_mib=256, allocator_collect_share=0.8) == (
        "max_split_size_mb:256,garbage_collection_threshold:0.8"
    )
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:native")
    assert told() is None, "torch would read the older name, and never ours"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:native")
    assert told() == "backend:native"
