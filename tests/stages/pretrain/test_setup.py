import pytest
import torch

from data.errors import InputError
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build


@pytest.mark.parametrize(
    ("changes", "gpus", "message"),
    [
        ({"device": "auto", "attention": "flash", "precision": "bf16"}, 0, 'pretrain.attention = "flash".*use "sdpa"'),
        ({"device": "auto", "attention": "flex"}, 0, 'pretrain.attention = "flex".*use "sdpa"'),
        ({"device": "auto", "precision": "fp8"}, 0, 'pretrain.precision = "fp8" needs'),
        ({"device": "cuda"}, 0, 'pretrain.device = "cuda".*no GPU here; use "auto"'),
        ({"device": "cuda", "num_processes": 3}, 2, "pretrain.num_processes = 3 is more than the 2 GPUs here"),
    ],
)
def test_what_this_machine_cannot_do_is_refused_by_the_name_of_its_setting(
    build: Build, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], gpus: int, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(InputError, match=message):
        build(micro.config(**changes))
