from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from data.vocabulary import SPACE_SYMBOL, Vocabulary
from stages.export.tokenizer import (
    EDGE_TEXTS,
    differences,
    load_tokenizer,
    read_sentencepiece,
    require_rows,
    write_tokenizer,
)
from tests.data.texts import AWKWARD, code, prose
from tests.stages.export.made import ODD_SIZE, config, tokenizer_model

STRINGS = [text for text in (*EDGE_TEXTS, *AWKWARD, *prose()[:10], *code()[:3]) if SPACE_SYMBOL not in text]
NEWLINE_SYMBOL = {"user_defined_symbols": ["\n", "<tab>"]}


def train(path: Path, **settings: Any) -> Path:
    """A SentencePiece model with other settings than the project's own."""
    import sentencepiece

    lines = [line for text in prose()[:20] for line in text.splitlines() if line]
    sentencepiece.SentencePieceTrainer.train(
        **{
            "sentence_iterator": iter(lines),
            "model_prefix": str(path.with_suffix("")),
            "vocab_size": 450,
            "model_type": "bpe",
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
            "allow_whitespace_only_pieces": True,
            "pad_id": -1,
            "minloglevel": 2,
            **settings,
        }
    )
    return path


def exported(source: Path, directory: Path) -> Any:
    """The tokenizer as a user of transformers loads it, beside the model's own config.json."""
    directory.mkdir()
    rows = len(read_sentencepiece(source).pieces)
    config(vocab_size=rows).save_pretrained(directory)
    write_tokenizer(source, directory, vocabulary_rows=rows, max_length=64)
    return load_tokenizer(directory)


@pytest.mark.parametrize("kind", ["own", "newline symbol"])
def test_ids_and_texts_are_those_of_sentencepiece(kind: str, tmp_path: Path) -> None:
    source = tokenizer_model(tmp_path) if kind == "own" else train(tmp_path / "other.model", **NEWLINE_SYMBOL)
    tokenizer = exported(source, tmp_path / "hf")
    reference = read_sentencepiece(source)
    assert differences(reference.encode, lambda text: tokenizer.encode(text, add_special_tokens=False), STRINGS) == []
    assert differences(reference.encode, tokenizer.encode, STRINGS) == [], "no token is added by default"
    for text in STRINGS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == len(reference.pieces)


def test_ids_are_those_the_model_was_trained_on(tmp_path: Path) -> None:
    source = tokenizer_model(tmp_path)
    assert differences(Vocabulary.load(source).encode, exported(source, tmp_path / "hf").encode, STRINGS) == []


def test_the_end_of_a_document_is_known_and_never_read_out_of_a_text(tmp_path: Path) -> None:
    tokenizer = exported(tokenizer_model(tmp_path), tmp_path / "hf")
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id) == (2, 2)
    assert 2 not in tokenizer.encode("use </s> to end")
    assert tokenizer("a", padding=False)["input_ids"] == tokenizer.encode("a")
    assert tokenizer.decode([2, *tokenizer.encode("x")], skip_special_tokens=True) == "x"


def test_characters_without_a_piece_are_bytes(tmp_path: Path) -> None:
    tokenizer = exported(tokenizer_model(tmp_path), tmp_path / "hf")
    text = "Za\u017c\u00f3\u0142\u0107 \uae30 \U0001f680 \x07"
    ids = tokenizer.encode(text)
    assert any(tokenizer.convert_ids_to_tokens(i).startswith("<0x") for i in ids), "some are not in the vocabulary"
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model_type": "unigram"}, "is not BPE"),
        ({"normalization_rule_name": "nmt_nfkc"}, "normaliser that rewrites"),
        ({"add_dummy_prefix": True}, "adds a dummy prefix"),
        ({"remove_extra_whitespaces": True}, "removes white space"),
        ({"byte_fallback": False}, "has no byte pieces"),
        ({"eos_id": -1}, "has no end-of-document piece"),
    ],
)
def test_a_model_that_could_not_be_reproduced_is_refused(settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        read_sentencepiece(train(tmp_path / "other.model", **settings))


def test_rows_without_a_piece_are_refused(tmp_path: Path) -> None:
    """A padded embedding: a row beyond the vocabulary could be generated."""
    reference = read_sentencepiece(tokenizer_model(tmp_path))
    require_rows(ODD_SIZE, reference)
    for rows in (ODD_SIZE - 1, ODD_SIZE + 23):
        with pytest.raises(InputError, match=f"{rows} vocabulary rows and the tokenizer {ODD_SIZE} pieces"):
            require_rows(rows, reference)


def test_differences_name_the_text_and_the_place() -> None:
    found = differences(list, lambda text: [*text.replace("b", "x")], ["aa", "ab", "cb", "bb"], most=2)
    assert len(found) == 2 and "'ab': at token 1" in found[0]
    assert differences(list, lambda text: [*text, "more"], ["a"]) != []
