"""The tokenizer stage: what its artifact promises, and what a user hears who asks for something impossible."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from data.errors import InputError
from data.vocabulary.vocabulary import Vocabulary
from stages.journal import Event, read_events
from stages.store import Artifact, Store
from stages.tokenizer import MODEL_FILE, TokenizerConfig
from stages.tokenizer import STAGE as TOKENIZER
from tests.data.texts import AWKWARD, prose
from tests.data.vocabulary.foreign import byte_level_json, sentencepiece_model
from tests.stages.token_chain import corpus, run_stage, small_corpus, tokenizer


def test_the_artifact_keeps_what_its_facts_promise(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = tokenizer(store, corpus(store))
    vocabulary = Vocabulary.load_folder(made.path)
    facts = made.facts
    assert vocabulary.size == facts["vocabulary_size"] == facts["padded_vocabulary_size"] == 512
    assert facts["eos_id"] == vocabulary.end_id == 2 and facts["special_tokens"] == {"<s>": 1, "</s>": 2}
    assert facts["encoding"]["method"] == vocabulary.method == "word table"
    assert facts["skipped_bytes"] == 0 and 299_990 <= sum(facts["sampled_bytes"].values()) <= 300_000
    assert set(facts["bytes_per_token"]) == {"prose", "code", "tiny"}
    assert 1.5 < facts["bytes_per_token"]["prose"] < 6
    assert facts["settings"]["normalization_rule_name"] == "identity"
    assert set(facts["fertility"]) == {"prose", "code", "tiny"} and facts["fertility"]["prose"] > 1
    english = facts["languages"]["en"]
    assert english["documents"] >= 40 and english["bytes_per_token"] > 1.5 and english["fertility"] > 1
    assert facts["measured"]["documents"] == sum(count["documents"] for count in facts["languages"].values())
    assert facts["measured"]["lossy_documents"] == 0
    assert 0 <= facts["unused_pieces"]["count"] < 250
    assert len(facts["unused_pieces"]["first"]) == min(20, facts["unused_pieces"]["count"])
    assert [vocabulary.decode(vocabulary.encode(text)) for text in AWKWARD] == list(AWKWARD)


def test_a_person_sees_which_step_runs_and_each_comes_to_its_end(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = tokenizer(store, corpus(store), sample_bytes=100_000)
    shown = [event for event in read_events(made.path / "events.jsonl") if event["kind"] == "progress"]
    first = {event["name"]: event["done"] for event in reversed(shown)}
    last = {event["name"]: (event["done"], event["total"]) for event in shown}
    assert list(last) == ["sample", "train", "measure"] and set(first.values()) == {0}
    assert last == {"sample": (1, 1), "train": (1, 1), "measure": (3, 3)}


def test_twice_the_same_bytes_and_another_seed_another_sample(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "a"), Store(tmp_path / "b")
    settings = {"sample_bytes": 100_000}
    made = tokenizer(first, corpus(first), **settings)
    again = tokenizer(second, corpus(second), **settings)
    other = tokenizer(second, corpus(second), **settings, seed=2)
    assert made.digest == again.digest
    assert (made.path / MODEL_FILE).read_bytes() != (other.path / MODEL_FILE).read_bytes()


def test_held_out_text_is_never_seen(tmp_path: Path) -> None:
    store = Store(tmp_path)
    texts = small_corpus()
    made = tokenizer(store, corpus(store, texts))
    texts["heldout"] = {"prose": ["zyzzyva " * 5000], "code": [], "tiny": []}
    other = tokenizer(store, corpus(store, texts))
    assert (made.path / MODEL_FILE).read_bytes() == (other.path / MODEL_FILE).read_bytes()


def test_a_size_that_is_no_multiple_names_the_nearest() -> None:
    with pytest.raises(ValidationError, match="1000 is not a multiple of tokenizer.size_multiple = 64.*960 and 1024"):
        TokenizerConfig(size=1000)


def test_too_small_a_corpus_names_the_largest_size(tmp_path: Path) -> None:
    store = Store(tmp_path)
    few = corpus(store, {"train": {"prose": [prose()[0][:600]]}, "heldout": {"prose": []}})
    with pytest.raises(InputError, match=r"at most (\d+)") as raised:
        tokenizer(store, few, size=4096)
    largest = int(str(raised.value).split("at most ")[1].split(",")[0])
    assert largest % 64 == 0
    assert tokenizer(store, few, size=largest).facts["vocabulary_size"] == largest


def test_an_empty_corpus_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(InputError, match="training part of the corpus is empty"):
        tokenizer(store, corpus(store, {"train": {"prose": []}, "heldout": {"prose": []}}))


def test_weights_of_the_sample_must_name_the_domains(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(InputError, match="tiny"):
        tokenizer(store, corpus(store), sample_weights={"prose": 1, "code": 1})
    even = tokenizer(store, corpus(store), sample_bytes=90_000, sample_weights={"prose": 1, "code": 1, "tiny": 1})
    sampled = even.facts["sampled_bytes"]
    assert sampled["tiny"] == 8 and abs(sampled["prose"] - sampled["code"]) < 20


def test_unigram_and_special_tokens_are_in_the_artifact(tmp_path: Path) -> None:
    store, events = Store(tmp_path), []
    settings = {"size": 512, "sample_bytes": 100_000, "algorithm": "unigram", "special_tokens": ("<|im_start|>",)}
    made = run_stage(store, TOKENIZER, TokenizerConfig(**settings), {"corpus": corpus(store)}, events)
    assert made.facts["special_tokens"] == {"<s>": 1, "</s>": 2, "<|im_start|>": 3}
    assert made.facts["encoding"]["method"] == "plain" and made.facts["settings"]["model_type"] == "unigram"
    assert any("slow way" in event.get("text", "") for event in events if event["kind"] == "warning")
    vocabulary = Vocabulary.load_folder(made.path)
    assert 3 not in vocabulary.encode("<|im_start|>") and vocabulary.size == 512


def test_special_tokens_that_cannot_be_are_refused_by_the_recipe() -> None:
    with pytest.raises(ValidationError, match="tokenizer.special_tokens: '</s>' is there already"):
        TokenizerConfig(special_tokens=("</s>",))
    with pytest.raises(ValidationError, match="tokenizer.end_token is for tokenizer.existing alone"):
        TokenizerConfig(end_token="</s>")
    with pytest.raises(ValidationError, match="tokenizer.existing must be the path"):
        TokenizerConfig(existing="tokenizer.bin")


def existing(store: Store, path: Path, **settings: Any) -> tuple[Artifact, list[Event]]:
    events: list[Event] = []
    config = TokenizerConfig(existing=str(path), **settings)
    return run_stage(store, TOKENIZER, config, {"corpus": corpus(store)}, events), events


def warnings(events: list[Event]) -> list[str]:
    return [event["text"] for event in events if event["kind"] == "warning"]


def test_an_existing_tokenizer_json_is_used_and_padded_by_the_one_rule(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "tokenizer.json"
    path.write_bytes(byte_level_json(adds_special=True))
    made, events = existing(store, path, end_token="<|endoftext|>", size_multiple=64)
    facts = made.facts
    assert (facts["vocabulary_size"], facts["padded_vocabulary_size"], facts["eos_id"]) == (401, 448, 0)
    assert (made.path / "tokenizer.json").read_bytes() == path.read_bytes()
    assert facts["measured"]["lossy_documents"] == 0 and "sampled_bytes" not in facts
    assert Vocabulary.load_folder(made.path).end_id == 0
    assert len(warnings(events)) == 1 and "slow way" in warnings(events)[0]


def test_an_existing_model_that_loses_text_says_so_and_that_size_has_no_effect(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "other.model"
    path.write_bytes(sentencepiece_model(user_defined_symbols=["<eod>"], control_symbols=["<end>"]))
    made, events = existing(store, path, end_token="<end>", size=1024)
    assert (made.facts["vocabulary_size"], made.facts["padded_vocabulary_size"]) == (450, 512)
    assert made.facts["measured"]["lossy_documents"] > 10
    found = " ".join(warnings(events))
    assert "do not come back" in found and "have no effect: tokenizer.size" in found and "slow way" in found
    assert Vocabulary.load_folder(made.path).end_id == made.facts["special_tokens"]["<end>"]


def test_the_key_follows_the_content_of_an_existing_tokenizer_and_not_its_place(tmp_path: Path) -> None:
    store, kinds = Store(tmp_path / "store"), {"one": b"", "moved": b"", "other": b" "}
    made = {}
    for name, more in kinds.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_bytes(byte_level_json() + more)
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
        made[name] = existing(store, tmp_path / name / "tokenizer.json")[0]
    assert made["one"].key == made["moved"].key != made["other"].key
    assert made["one"].facts["eos_id"] == 0, "named by the file beside it"
    (tmp_path / "one" / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|begin|>"}))
    again, _ = existing(store, tmp_path / "one" / "tokenizer.json")
    assert again.key != made["one"].key and again.facts["eos_id"] == 1


def test_an_existing_tokenizer_that_is_not_there_or_names_no_end(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(InputError, match="tokenizer.existing: there is no file"):
        existing(store, tmp_path / "none.model")
    (tmp_path / "tokenizer.json").write_bytes(byte_level_json())
    with pytest.raises(InputError, match="set tokenizer.end_token to one of"):
        existing(store, tmp_path / "tokenizer.json")
