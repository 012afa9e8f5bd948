"""A model from outside becomes an artifact, and is judged with its own tokenizer."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from data.errors import InputError
from stages.adopt import STAGE
from stages.base import execute
from stages.evaluate import STAGE as EVALUATE
from stages.export import gguf_file, hf
from stages.fingerprint import identity
from stages.scored_model import load_adopted, load_scored
from stages.store import Artifact, Store
from tests.data.texts import code
from tests.stages.export.made import (
    ODD_SIZE,
    job,
    model,
    publish,
    publish_corpus,
    publish_tokenizer,
    tokenizer_model,
)


def set_config(folder: Path, **changes: Any) -> None:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, **changes}))


def replace_model(folder: Path, family: str) -> None:
    """The tokenizer stays."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16}
    config = AutoConfig.for_model(family, vocab_size=ODD_SIZE, initializer_range=0.5, **shape)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def adopt(root: Path, source: Path | str, **settings: Any) -> Artifact:
    return execute(job(STAGE, {"source": str(source), **settings}), Store(root))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in Hugging Face's form, with what must not be taken beside it."""
    parent = tmp_path_factory.mktemp("outside")
    hf.save(model(), tokenizer_model(parent), parent / "model", eos_id=2)
    (parent / "model" / "pytorch_model.bin").write_bytes(b"a pickle")
    (parent / "model" / "modeling_own.py").write_text("raise SystemExit")
    return parent / "model"


def test_a_folder_is_copied_without_pickles_and_code_and_evaluated_with_its_tokenizer(
    folder: Path, tmp_path: Path
) -> None:
    found = adopt(tmp_path, folder)
    names = {path.name for path in (found.path / "hf").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not names & {"pytorch_model.bin", "modeling_own.py"}
    assert found.facts["format"] == "safetensors" and found.facts["step"] is None and found.facts["end_ids"] == [2]
    loaded = load_adopted(found.path / "hf").model
    for (name, one), other in zip(model().named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, other), name
    store = Store(tmp_path)
    evaluation = execute(
        job(
            EVALUATE,
            {"domain_bytes": 500, "suites": {"names": (), "last_names": ()}},
            model=found,
            corpus=publish_corpus(store, {"code": list(code()[:2])}),
            tokenizer=publish_tokenizer(store),
        ),
        store,
    )
    assert evaluation.facts["model"] == {
        "stage": "adopt",
        "key": found.key,
        "step": None,
        "tokens_seen": None,
        "form": "",
        "start_token": "as tokenizer",
    }
    assert evaluation.facts["bits_per_byte"]["code"]["value"] > 0


def test_a_gguf_file_is_dequantised(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.gguf"
    gguf_file.write(model(), tokenizer_model(tmp_path), path, "q4_0")
    found = adopt(tmp_path / "store", path)
    assert capfd.readouterr().err == "", "a stage does not print"
    assert found.facts["format"] == "gguf" and found.facts["architecture"] == "LlamaForCausalLM"
    loaded = load_adopted(found.path / "hf").model
    wanted = gguf_file.read_state_dict(path, model().config)
    for name, values in loaded.state_dict().items():
        assert torch.allclose(values, wanted[name], atol=1e-6), name


def test_what_a_gguf_file_does_not_give_is_not_made_up(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    gguf_file.write(model(), tokenizer_model(tmp_path), path, "f32")
    whole = path.read_bytes()
    assert whole.count(b"blk.1.ffn_down.weight") == 1
    path.write_bytes(whole.replace(b"blk.1.ffn_down.weight", b"blk.1.ffn_lost.weight"))
    with pytest.raises(InputError, match="does not give the weights of 1 tensors, model.layers.1.mlp.down_proj"):
        adopt(tmp_path / "store", path)


def test_the_links_of_the_cache_of_the_hub_are_followed(folder: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / ("0" * 40)
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for path in folder.iterdir():
        (blobs / path.name).write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)
    assert job(STAGE, {"source": str(snapshot)}).key == job(STAGE, {"source": str(folder)}).key


def test_each_form_of_an_export_is_scored(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fill(out: Path) -> None:
        hf.save(model(), tokenizer_model(tmp_path), out / "hf", eos_id=2)
        gguf_file.write(model(), tokenizer_model(tmp_path), out / "gguf/model-q4_0.gguf", "q4_0")

    exported, tokenizer = publish(store, "export", fill, {}), publish_tokenizer(store)
    found = {}
    for form in ("hf", "gguf-q4_0"):
        scored = load_scored(exported, tokenizer.path, batch_tokens=64, form=form)
        found[form] = scored.scorer.rolling([scored.tokenizer.encode("def f(x):\n    return x\n")])[0].log_likelihood
        assert scored.start_token == "always"
    assert found["hf"] != found["gguf-q4_0"] and found["hf"] == pytest.approx(found["gguf-q4_0"], rel=0.2)
    with pytest.raises(InputError, match="no form gguf-f32"):
        load_scored(exported, tokenizer.path, batch_tokens=64, form="gguf-f32")


def test_the_key_is_of_the_content_and_not_of_the_place(folder: Path, tmp_path: Path) -> None:
    import shutil

    copied = tmp_path / "elsewhere"
    shutil.copytree(folder, copied)
    assert job(STAGE, {"source": str(folder)}).key == job(STAGE, {"source": str(copied)}).key
    set_config(copied, rms_norm_eps=1e-3)
    assert job(STAGE, {"source": str(folder)}).key != job(STAGE, {"source": str(copied)}).key
    assert "source" not in identity(STAGE.config(source="x"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "no .safetensors file.*pickles"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be read"),
        (
            lambda folder: (folder / "config.json").write_text('{"auto_map": {"AutoModelForCausalLM": "m.M"}}'),
            "code of its own",
        ),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "unheard-of"}'), "cannot be loaded"),
        (lambda folder: (folder / "config.json").write_text("[]"), "no JSON object"),
        (lambda folder: set_config(folder, _attn_implementation="someone/kernel"), "code of its own"),
        (lambda folder: set_config(folder, num_hidden_layers=3), "does not give the weights of 9 tensors"),
        (lambda folder: set_config(folder, intermediate_size=95), "cannot be loaded"),
        (lambda folder: os.truncate(folder / "model.safetensors", 1000), "cannot be loaded"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "cannot be loaded"),
        (lambda folder: (folder / "added_tokens.json").symlink_to("/etc/hostname"), "outside of the model's folder"),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text(
                '{"weight_map": {"lm_head.weight": "../other.safetensors"}}'
            ),
            "outside of the model's folder",
        ),
        (lambda folder: replace_model(folder, "bert"), "sees the tokens that come after"),
    ],
)
def test_what_is_wrong_with_a_model_is_named(change: Any, words: str, folder: Path, tmp_path: Path) -> None:
    import shutil

    copied = tmp_path / "model"
    shutil.copytree(folder, copied)
    change(copied)
    with pytest.raises(InputError, match=words):
        adopt(tmp_path / "store", copied)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "adopt.source is empty"),
        ({"source": "./nowhere"}, "no folder and no file"),
        ({"source": "someone/model"}, "adopt.revision.*40 hex digits"),
        ({"source": "someone/model", "revision": "main"}, "adopt.revision.*40 hex digits"),
        ({"source": "someone/model", "revision": "0" * 40}, "cannot be had"),
    ],
)
def test_a_source_must_be_there_and_stay_what_it_is(
    settings: dict, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=words):
        execute(job(STAGE, settings), Store(tmp_path))
