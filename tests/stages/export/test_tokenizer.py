import json
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from data.vocabulary.sentencepiece import CONTROL
from data.vocabulary.training import train_vocabulary
from data.vocabulary.vocabulary import SPACE_SYMBOL, Vocabulary
from stages.export.tokenizer import (
    EDGE_TEXTS,
    differences,
    load_tokenizer,
    plain_json,
    read_sentencepiece,
    require_rows,
    unfit,
    write_tokenizer,
)
from tests.data.texts import AWKWARD, code, prose
from tests.data.vocabulary.foreign import LOSSLESS, byte_level_json, sentencepiece_model
from tests.stages.export.made import ODD_SIZE, config, tokenizer_model

STRINGS = [text for text in (*EDGE_TEXTS, *AWKWARD, *prose()[:10], *code()[:3]) if SPACE_SYMBOL not in text]
SPECIAL = ("<|im_start|>", "<|im_end|>")
NEWLINE_SYMBOL = {"user_defined_symbols": ["\n", "<tab>"]}


def train(path: Path, **settings: Any) -> Path:
    """A SentencePiece model with other settings than the project's own."""
    path.write_bytes(sentencepiece_model(**{**LOSSLESS, **settings}))
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
    reference = Vocabulary.load(source)
    assert differences(reference.encode, lambda text: tokenizer.encode(text, add_special_tokens=False), STRINGS) == []
    assert differences(reference.encode, tokenizer.encode, STRINGS) == [], "no token is added by default"
    for text in STRINGS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == reference.size


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
        ({"eos_id": -1}, "names no piece that ends a document"),
    ],
)
def test_a_model_that_could_not_be_reproduced_is_refused(settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        read_sentencepiece(train(tmp_path / "other.model", **settings))


def test_rows_without_a_piece_are_refused(tmp_path: Path) -> None:
    """A padded embedding: a row beyond the vocabulary could be generated."""
    require_rows(ODD_SIZE, ODD_SIZE)
    for number, source in enumerate((tokenizer_model(tmp_path), json_folder(tmp_path / "json"))):
        size = Vocabulary.load_folder(source.parent).size
        for rows in (size - 1, size + 23):
            with pytest.raises(InputError, match=f"{rows} vocabulary rows and the tokenizer {size} pieces"):
                write_tokenizer(source, tmp_path / str(number), vocabulary_rows=rows, max_length=64)


def test_special_tokens_keep_their_ids_and_stay_out_of_text(tmp_path: Path) -> None:
    source = tmp_path / "tokenizer.model"
    source.write_bytes(train_vocabulary([text[:3000] for text in prose()[:10]], size=450, special_tokens=SPECIAL))
    reference, tokenizer = Vocabulary.load_folder(tmp_path), exported(source, tmp_path / "hf")
    assert [tokenizer.convert_tokens_to_ids(token) for token in SPECIAL] == [3, 4]
    texts = [*STRINGS, *SPECIAL, "<|im_start|>user\nhello<|im_end|>"]
    assert differences(reference.encode, tokenizer.encode, texts) == []
    assert tokenizer.encode("<|im_start|>user", split_special_tokens=False) == [3, *reference.encode("user")]
    assert tokenizer.decode([3, *reference.encode("x"), 4], skip_special_tokens=True) == "x"
    kinds = {piece.text: piece.kind for piece in read_sentencepiece(source).pieces}
    assert [kinds[token] for token in SPECIAL] == [CONTROL] * 2


def json_folder(folder: Path, **settings: Any) -> Path:
    """A tokenizer.json as the tokenizer stage leaves it."""
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(byte_level_json(**settings))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("adds_special", [False, True])
def test_a_tokenizer_json_is_exported_as_it_was_trained_on(adds_special: bool, tmp_path: Path) -> None:
    source = json_folder(tmp_path / "source", adds_special=adds_special)
    reference = Vocabulary.load_folder(source.parent)
    (tmp_path / "hf").mkdir()
    config(vocab_size=reference.size).save_pretrained(tmp_path / "hf")
    write_tokenizer(source, tmp_path / "hf", vocabulary_rows=reference.size, max_length=64)
    tokenizer = load_tokenizer(tmp_path / "hf")
    texts = [*STRINGS, "<|endoftext|>", "a <|begin|> b"]
    assert differences(reference.encode, tokenizer.encode, texts) == []
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id, len(tokenizer)) == (0, 0, reference.size)
    same = (tmp_path / "hf" / "tokenizer.json").read_bytes() == source.read_bytes()
    assert same != adds_special and not (tmp_path / "hf" / "tokenizer.model").exists()


def test_what_adds_to_no_text_is_left_as_it_is() -> None:
    content = byte_level_json()
    assert plain_json(content) == content.decode()


def test_forms_that_a_tokenizer_does_not_fit_into(tmp_path: Path) -> None:
    own, other = tokenizer_model(tmp_path), json_folder(tmp_path / "json")
    prefixed = train(tmp_path / "prefixed.model", add_dummy_prefix=True)
    assert [unfit(own, gguf=gguf) for gguf in (False, True)] == [[], []]
    assert unfit(other, gguf=False) == [] and "tokenizer.json" in unfit(other, gguf=True)[0]
    assert [unfit(prefixed, gguf=gguf) for gguf in (False, True)] == [["its tokenizer adds a dummy prefix"]] * 2
    for source in (other, prefixed):
        with pytest.raises(InputError, match="take the form out of export.forms"):
            read_sentencepiece(source)


def test_differences_name_the_text_and_the_place() -> None:
    found = differences(list, lambda text: [*text.replace("b", "x")], ["aa", "ab", "cb", "bb"], most=2)
    assert len(found) == 2 and "'ab': at token 1" in found[0]
    assert differences(list, lambda text: [*text, "more"], ["a"]) != []
