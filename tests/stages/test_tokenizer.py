"""The tokenizer stage: what its artifact promises, and what a user hears who asks for something impossible."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from data.errors import InputError
from data.vocabulary import Vocabulary
from stages.journal import read_events
from stages.store import Store
from stages.tokenizer import MODEL_FILE, TokenizerConfig
from tests.data.texts import AWKWARD, prose
from tests.stages.token_chain import corpus, small_corpus, tokenizer


def test_the_artifact_keeps_what_its_facts_promise(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = tokenizer(store, corpus(store))
    vocabulary = Vocabulary.load(made.path / MODEL_FILE)
    facts = made.facts
    assert vocabulary.size == facts["vocabulary_size"] == 512
    assert (facts["unk_id"], facts["bos_id"], facts["eos_id"]) == (0, 1, 2)
    assert facts["skipped_bytes"] == 0 and 299_990 <= sum(facts["sampled_bytes"].values()) <= 300_000
    assert set(facts["bytes_per_token"]) == {"prose", "code", "tiny"}
    assert 1.5 < facts["bytes_per_token"]["prose"] < 6
    assert facts["settings"]["normalization_rule_name"] == "identity"
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
