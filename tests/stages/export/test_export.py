from pathlib import Path
from typing import Any

import pytest
import torch

from data.errors import InputError
from stages.base import execute
from stages.export import STAGE, measure
from stages.export.config import Form
from stages.export.generate import continue_prompt
from stages.journal import read_events
from stages.store import Artifact, Store
from tests.data.texts import code, prose
from tests.data.vocabulary.foreign import byte_level_json, sentencepiece_model
from tests.stages.export.made import (
    ODD_SIZE,
    job,
    model,
    publish_checkpoint,
    publish_corpus,
    publish_tokenizer,
    trained,
)

SETTINGS = {"domain_bytes": 1500, "prompts": ("def ", "The ", ""), "greedy_tokens": 6, "sample_tokens": 6, "threads": 1}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    store = Store(tmp_path_factory.mktemp("store"))
    heldout = {"code": list(code()[:3]), "prose": list(prose()[:5])}
    return {
        "store": store,
        "corpus": publish_corpus(store, heldout),
        "tokenizer": publish_tokenizer(store),
        "model": publish_checkpoint(store, trained([text for found in heldout.values() for text in found])),
    }


def export(inputs: dict[str, Any], root: Path, **settings: Any) -> Artifact:
    """Into a store of its own, so that two exports with one key can be compared."""
    artifacts = {name: inputs[name] for name in ("model", "corpus", "tokenizer")}
    return execute(job(STAGE, {**SETTINGS, **settings}, **artifacts), Store(root))


def test_every_form_is_there_measured_and_the_same_every_time(inputs: dict[str, Any], tmp_path: Path) -> None:
    made = export(inputs, tmp_path / "a", max_bits_per_byte_increase=1.0)
    facts = made.facts
    assert set(facts["forms"]) == {"hf", "gguf-f32", "gguf-q4_0"}
    for form in Form:
        figures = facts["forms"][form.value]
        assert figures["accepted"] and (made.path / form.path).exists() and figures["bytes"] > 0
        assert set(figures["bits_per_byte"]) == {"code", "prose"}
        assert made.manifest.measurements["forms"][form.value]["tokens_per_second"] > 0
    for exact in ("hf", "gguf-f32"):
        assert (
            facts["forms"][exact]["bits_per_byte"] == facts["bits_per_byte"] and facts["forms"][exact]["increase"] == 0
        )
        assert facts["forms"][exact]["same_greedy_tokens"] and facts["forms"][exact]["greedy"]["compared"] >= 10
    assert facts["forms"]["gguf-q4_0"]["bits_per_byte"] != facts["bits_per_byte"]
    assert (facts["step"], facts["tokens_seen"]) == (7, 700)
    sample = (made.path / "sample.txt").read_text(encoding="utf-8")
    assert facts["samples"][0]["sampled"] in sample and "temperature 0.8" in sample
    assert export(inputs, tmp_path / "b", max_bits_per_byte_increase=1.0).digest == made.digest


def test_every_step_that_is_shown_comes_to_its_end(inputs: dict[str, Any], tmp_path: Path) -> None:
    made = export(inputs, tmp_path, forms=("hf",))
    last = {e["name"]: (e["done"], e["total"]) for e in read_events(made.path / "events.jsonl") if "done" in e}
    assert last == {"held-out text": (2, 2), "forms": (1, 1)}


def test_a_form_that_lost_too_much_is_not_shipped_and_the_others_are(inputs: dict[str, Any], tmp_path: Path) -> None:
    made = export(inputs, tmp_path, max_bits_per_byte_increase=1e-5)
    refused = made.facts["forms"]["gguf-q4_0"]
    assert not refused["accepted"] and refused["increase"] > 1e-5 and "allowed are 0.00%" in refused["reasons"][0]
    assert not (made.path / Form.GGUF_Q4_0.path).exists() and (made.path / Form.GGUF_F32.path).exists()
    (event,) = [e for e in read_events(made.path / "events.jsonl") if e["kind"] == "export.refused"]
    assert (
        event["form"] == "gguf-q4_0"
        and event["increase"] == refused["increase"]
        and event["reasons"] == refused["reasons"]
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_form_whose_quality_is_no_number_is_refused_and_told(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    right = measure.hf.load

    def damaged(directory: Path) -> Any:
        made = right(directory)
        with torch.no_grad():
            made.lm_head.weight[5] = value
        return made

    monkeypatch.setattr(measure.hf, "load", damaged)
    made = export(inputs, tmp_path, forms=("hf", "gguf-f32"))
    refused = made.facts["forms"]["hf"]
    assert not refused["accepted"] and refused["reasons"][0].startswith("bits per byte on ")
    assert refused["increase"] is None and set(refused["bits_per_byte"].values()) == {None}
    assert made.facts["forms"]["gguf-f32"]["accepted"] and not (made.path / Form.HF.path).exists()
    (event,) = [e for e in read_events(made.path / "events.jsonl") if e["kind"] == "export.refused"]
    assert event["form"] == "hf" and event["increase"] is None


def test_nothing_is_left_of_a_folder_whose_only_form_was_refused(inputs: dict[str, Any], tmp_path: Path) -> None:
    made = export(inputs, tmp_path, forms=("hf", "gguf-q4_0"), max_bits_per_byte_increase=1e-5)
    assert sorted(path.name for path in made.path.iterdir() if path.is_dir()) == ["hf"]


def test_a_writer_that_spoils_the_weights_is_caught(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the fault in a form, what is loaded is what is measured."""
    right = measure.gguf_file.permute
    monkeypatch.setattr(measure.gguf_file, "permute", lambda weight, heads: right(weight, 8))
    made = export(inputs, tmp_path, forms=("hf", "gguf-f32"))
    figures = made.facts["forms"]["gguf-f32"]
    assert not figures["accepted"] and not figures["same_greedy_tokens"]
    assert made.facts["forms"]["hf"]["accepted"]


def test_an_exported_tokenizer_that_differs_is_refused(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = measure.load_tokenizer

    class Lowering:
        def __init__(self, directory: Path) -> None:
            self.right = right(directory)

        def encode(self, text: str, **settings: Any) -> list[int]:
            return self.right.encode(text.lower(), **settings)

    monkeypatch.setattr(measure, "load_tokenizer", Lowering)
    figures = export(inputs, tmp_path, forms=("hf", "gguf-f32")).facts["forms"]["hf"]
    assert not figures["accepted"] and any("tokenizer differs" in reason for reason in figures["reasons"])


def test_a_half_precision_form_is_smaller_and_measured(inputs: dict[str, Any], tmp_path: Path) -> None:
    made = export(inputs, tmp_path, forms=("hf",), hf_dtype="bfloat16")
    whole = export(inputs, tmp_path, forms=("hf",))
    assert made.facts["forms"]["hf"]["bytes"] < 0.75 * whole.facts["forms"]["hf"]["bytes"]
    assert made.facts["forms"]["hf"]["bits_per_byte"] != made.facts["bits_per_byte"]


def test_a_shape_without_four_bit_form_ships_the_others_and_says_why(inputs: dict[str, Any], tmp_path: Path) -> None:
    narrow = publish_checkpoint(inputs["store"], model(hidden_size=48, num_attention_heads=6))
    made = export({**inputs, "model": narrow}, tmp_path, forms=("hf", "gguf-q4_0"))
    assert made.facts["forms"]["hf"]["accepted"] and not made.facts["forms"]["gguf-q4_0"]["accepted"]
    assert "hidden_size = 48 is not a multiple of 32" in made.facts["forms"]["gguf-q4_0"]["reasons"][0]
    with pytest.raises(InputError, match="none of export.forms can hold this model.*hidden_size = 48"):
        export({**inputs, "model": narrow}, tmp_path, forms=("gguf-q4_0",))


def test_a_tokenizer_json_ships_in_the_form_that_can_hold_it(inputs: dict[str, Any], tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "tokenizer.json").write_bytes(byte_level_json(adds_special=True))
        (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')

    store = Store(tmp_path / "made")
    artifacts = {"tokenizer": publish_tokenizer(store, fill), "model": publish_checkpoint(store, model(vocab_size=401))}
    made = export({**inputs, **artifacts}, tmp_path, forms=("hf", "gguf-f32"))
    accepted = {form: figures["accepted"] for form, figures in made.facts["forms"].items()}
    assert accepted == {"hf": True, "gguf-f32": False}
    assert "its tokenizer is a tokenizer.json" in made.facts["forms"]["gguf-f32"]["reasons"][0]
    assert made.facts["forms"]["hf"]["same_greedy_tokens"]


def test_a_tokenizer_that_no_form_can_hold_is_refused_before_any_work(inputs: dict[str, Any], tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "tokenizer.model").write_bytes(sentencepiece_model(vocab_size=ODD_SIZE))

    tokenizer = publish_tokenizer(Store(tmp_path / "made"), fill)
    with pytest.raises(InputError, match="none of export.forms can hold this model.*normaliser that rewrites text"):
        export({**inputs, "tokenizer": tokenizer}, tmp_path)


def test_a_sample_follows_its_seed(inputs: dict[str, Any], tmp_path: Path) -> None:
    one, other = (export(inputs, tmp_path, forms=("hf",), seed=seed).facts["samples"] for seed in (1, 2))
    assert [s["greedy"] for s in one] == [s["greedy"] for s in other]
    assert [s["sampled"] for s in one] != [s["sampled"] for s in other]


def test_drawing_leaves_the_global_random_state_alone() -> None:
    made = model()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    drawn = continue_prompt(made, [2, 9], max_new_tokens=8, end_id=2, temperature=1.0, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    assert drawn == continue_prompt(made, [2, 9], max_new_tokens=8, end_id=2, temperature=1.0, seed=3)
