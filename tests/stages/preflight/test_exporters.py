"""A user relies on: an exporter that would ruin the model is found before the training, not after it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.export import gguf_file, hf
from stages.preflight.checks import Check, Status
from stages.preflight.exporters import MOST_LAYERS, Exporters
from stages.pretrain.config import ModelConfig
from tests.data.texts import model

SHAPE = ModelConfig(
    hidden_size=64, num_layers=5, num_heads=4, num_kv_heads=2, intermediate_size=96, context_tokens=64,
    initializer_std=0.05,
)  # fmt: skip


def exporters(folder: Path, shape: ModelConfig = SHAPE) -> Exporters:
    tokenizer = folder / "tokenizer.model"
    tokenizer.write_bytes(model(size=600))
    return Exporters(shape, vocabulary_size=600, eos_id=2, tokenizer_model=tokenizer, folder=folder, threads=1)


def verdicts(tried: Exporters) -> dict[str, Check]:
    return {name: find_out() for name, find_out in tried.checks(server_seconds=60)}


@pytest.mark.parametrize(
    "family",
    [
        {},
        {"family": "mistral"},
        {"family": "qwen3", "head_dim": 32},
        {"family": "granite", "mup_base_hidden_size": 16, "residual_multiplier": 0.5, "tie_embeddings": False},
    ],
    ids=lambda family: family.get("family", "llama"),
)
def test_every_form_of_a_sound_model_comes_back(family: dict[str, Any], tmp_path: Path) -> None:
    tried = exporters(tmp_path, SHAPE.model_copy(update=family))
    assert tried.model.config.num_hidden_layers == MOST_LAYERS < SHAPE.num_layers
    found = verdicts(tried)
    assert list(found) == ["export hf", "export gguf-f32", "export gguf-q4_0", "llama.cpp"]
    assert {check.status for check in found.values()} == {Status.PASS}, found


def test_a_family_whose_tokenizer_is_read_as_another_is_found(tmp_path: Path) -> None:
    check = exporters(tmp_path, SHAPE.model_copy(update={"family": "qwen2"})).hugging_face()
    assert check.status is Status.FAIL
    assert "as a Qwen2Tokenizer" in check.detail and "set model.family to another than qwen2" in check.detail


def test_a_width_that_a_form_cannot_hold_warns(tmp_path: Path) -> None:
    check = exporters(tmp_path, SHAPE.model_copy(update={"intermediate_size": 100})).gguf("q4_0")
    assert check.status is Status.WARN and "intermediate_size = 100" in check.detail and "export.forms" in check.detail


def test_a_wrong_permutation_of_the_keys_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permuted with the number of query heads, as a faulty converter did; its own reader has the mirrored fault."""
    real = gguf_file._heads

    def wrong(name: str, num_heads: int, num_kv_heads: int) -> int | None:
        return num_heads if name.endswith("k_proj.weight") else real(name, num_heads, num_kv_heads)

    monkeypatch.setattr(gguf_file, "_heads", wrong)
    tried = exporters(tmp_path)
    assert tried.gguf("f32").status is Status.PASS, "writer and reader agree with each other"
    check = tried.llama_cpp(60)
    assert check.status is Status.FAIL and "next tokens differ" in check.detail


def test_weights_that_come_back_changed_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_load, real_quantize = hf.load, __import__("gguf").quants.quantize

    def load(directory: Path) -> Any:
        loaded = real_load(directory)
        loaded.model.layers[1].mlp.up_proj.weight.data[0, 0] += 1e-6
        return loaded

    monkeypatch.setattr(hf, "load", load)
    monkeypatch.setattr("gguf.quants.quantize", lambda values, kind: real_quantize(np.roll(values, 1, axis=-1), kind))
    tried = exporters(tmp_path)
    hugging_face, quantised = tried.hugging_face(), tried.gguf("q4_0")
    assert hugging_face.status is Status.FAIL and "layers.1.mlp.up_proj.weight" in hugging_face.detail
    assert quantised.status is Status.FAIL and "q_proj.weight comes back with an error of 1.4" in quantised.detail


def test_a_form_that_was_not_written_is_not_loaded(tmp_path: Path) -> None:
    assert exporters(tmp_path).llama_cpp(60).status is Status.NOT_APPLICABLE
