import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from stages.pretrain.config import PretrainConfig
from stages.pretrain.model.liger import apply


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Liger, of which a stand-in is installed beside a GPU, was asked for."""
    seen: list[dict[str, Any]] = []
    package, module = ModuleType("liger_kernel"), ModuleType("liger_kernel.transformers")
    package.__spec__ = ModuleSpec("liger_kernel", None)
    package.transformers = module  # type: ignore[attr-defined]
    module.apply_liger_kernel_to_llama = lambda **settings: seen.append(settings)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "liger_kernel", package)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", module)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return seen


def model(kind: str) -> Any:
    return SimpleNamespace(config=SimpleNamespace(model_type=kind))


def test_its_kernels_are_used_on_a_gpu_and_its_loss_is_not(calls: list[dict[str, Any]]) -> None:
    llama = model("llama")
    assert apply(PretrainConfig(), llama)
    assert calls[0]["model"] is llama and calls[0]["rms_norm"]
    assert not calls[0]["cross_entropy"] and not calls[0]["fused_linear_cross_entropy"]


def test_they_are_left_out_where_they_cannot_be_used_or_are_not_wanted(
    calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not apply(PretrainConfig(liger="off"), model("llama"))
    assert not apply(PretrainConfig(compile=True), model("llama"))
    assert not apply(PretrainConfig(device="cpu"), model("llama"))
    assert not apply(PretrainConfig(), model("unheard-of"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not apply(PretrainConfig(), model("llama"))
    assert not calls
