"""Documents under a tokenizer made elsewhere: one end token to each, whatever its own habits, and what it loses is
counted.
"""

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from data.shards.files import TokenShard
from data.shards.index import read_index
from stages.journal import Event
from stages.store import Artifact, Store
from tests.data.texts import prose
from tests.stages.token_chain import corpus, foreign_tokenizer, pretokenize

LITERAL = "use </s> to end, <|endoftext|> too, <s> as well"
TEXTS = ["a", "", "b", LITERAL, "\ufe30 \u2460  two spaces", prose()[0][:2000]]


def sentencepiece_model(**settings: Any) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in prose()[:20] for line in text.splitlines()),
        model_writer=model,
        vocab_size=400,
        minloglevel=2,
        **{"num_threads": 1, "model_type": "bpe", "byte_fallback": True} | settings,
    )
    return model.getvalue()


def byte_level_json(template: str, end_token: str = "<|endoftext|>") -> bytes:
    """A byte-level BPE whose post-processor puts special tokens around a text, as `template` says."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [end_token, "<s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=401, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(prose()[:20], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[(piece, tokenizer.token_to_id(piece)) for piece in special]
    )
    return tokenizer.to_str().encode()


def made(root: Path, files: dict[str, bytes], padded: int, events: list[Event]) -> Artifact:
    store = Store(root)
    text = corpus(store, {"train": {"p": TEXTS}, "heldout": {"p": ["held out"]}})
    return pretokenize(store, text, foreign_tokenizer(store, files, padded), events)


def documents_of(tokens: Artifact) -> list[list[int]]:
    index = read_index(tokens.path / "train")
    shards = [TokenShard(tokens.path / "train" / name, index.header) for name in dict.fromkeys(index.shard)]
    return [shard.read()[first:end].tolist() for shard in shards for first, end in pairwise(shard.offsets)]


@pytest.mark.parametrize("template", ["$A", "$A <|endoftext|>", "<s> $A <|endoftext|>"])
def test_one_end_token_to_a_document_whatever_the_tokenizer_adds_itself(tmp_path: Path, template: str) -> None:
    files = {
        "tokenizer.json": byte_level_json(template),
        "tokenizer_config.json": b'{"eos_token": "<|endoftext|>"}',
    }
    events: list[Event] = []
    tokens = made(tmp_path, files, 448, events)
    end_id, documents = tokens.facts["eos_id"], documents_of(tokens)
    assert [document.count(end_id) for document in documents] == [1] * len(TEXTS)
    assert all(document[-1] == end_id for document in documents) and documents[1] == [end_id]
    assert all(1 not in document for document in documents), "the beginning token was added"
    assert (tokens.facts["vocabulary_size"], tokens.facts["padded_vocabulary_size"]) == (401, 448)
    assert tokens.facts["domains"]["p"]["train_lossy_documents"] == 0
    assert tokens.facts["encoding"]["method"] == "plain"
    warnings = [event["text"] for event in events if event["kind"] == "warning"]
    assert len(warnings) == 1 and tokens.facts["encoding"]["why"] in warnings[0]


def test_a_tokenizer_that_rewrites_text_is_counted_against(tmp_path: Path) -> None:
    """NFKC and white space removed: the one with U+FE30 and the long one do not come back."""
    events: list[Event] = []
    tokens = made(tmp_path, {"tokenizer.model": sentencepiece_model()}, 448, events)
    domain = tokens.facts["domains"]["p"]
    assert (domain["train_lossy_documents"], domain["heldout_lossy_documents"]) == (2, 0)
    end_id, documents = tokens.facts["eos_id"], documents_of(tokens)
    assert [document.count(end_id) for document in documents] == [1] * len(TEXTS)
    warnings = " ".join(event["text"] for event in events if event["kind"] == "warning")
    assert "2 of 7 documents do not come back from their tokens" in warnings


def test_a_small_vocabulary_that_is_padded_beyond_16_bits_is_stored_in_32(tmp_path: Path) -> None:
    tokens = made(tmp_path, {"tokenizer.model": sentencepiece_model()}, 65_600, [])
    assert tokens.facts["dtype"] == "uint32"
    assert TokenShard(tokens.path / "train" / "p-00000.arrow").read().dtype.name == "uint32"


def test_what_is_lost_is_counted_again_when_a_shard_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    files = {"tokenizer.model": sentencepiece_model()}
    with monkeypatch.context() as patched:
        patched.setattr("stages.pretokenize.write_index", killed)
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path / "killed", files, 448, [])
    resumed, whole = made(tmp_path / "killed", files, 448, []), made(tmp_path / "whole", files, 448, [])
    assert resumed.manifest.measurements["kept_shards"] == 2 and resumed.digest == whole.digest
