"""A user relies on: text comes back byte for byte, the fast encoder equals SentencePiece, a document has one end."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from data.errors import InputError
from data.vocabulary.merge_kernels import ID_BITS
from data.vocabulary.sentencepiece import MAX_TABLE_SIZE, SentencePieceVocabulary
from data.vocabulary.vocabulary import (
    BEGINNING_ID,
    END_ID,
    NUM_CONTROL,
    UNKNOWN_ID,
    Vocabulary,
    token_dtype,
    vocabulary_file,
)
from tests.data.texts import AWKWARD, code, model, prose, vocabulary
from tests.data.vocabulary.foreign import LOSSLESS, edited_model, sentencepiece_model


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_comes_back_and_has_no_control_id(text: str) -> None:
    tokens = vocabulary().encode(text)
    assert vocabulary().decode(tokens) == text
    assert all(token >= NUM_CONTROL for token in tokens)
    assert vocabulary().token_bytes()[tokens].sum() == len(text.encode())


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert vocabulary().decode(vocabulary().encode(text)) == text


def test_real_documents_come_back_through_the_fast_encoder() -> None:
    texts = prose() + code()
    tokens, offsets = vocabulary().encode_documents(texts)
    assert [vocabulary().decode(tokens[a:b]) for a, b in zip(offsets, offsets[1:], strict=False)] == list(texts)


def test_each_document_has_exactly_one_end_and_no_beginning() -> None:
    tokens, offsets = vocabulary().encode_documents(["a", "", "use </s> to end, <|endoftext|> too", "b"])
    assert (tokens == END_ID).sum() == 4 and (tokens[offsets[1:] - 1] == END_ID).all()
    assert offsets[2] - offsets[1] == 1
    assert not np.isin(tokens, [BEGINNING_ID, UNKNOWN_ID]).any()
    assert vocabulary().decode(tokens[offsets[2] : offsets[3]]) == "use </s> to end, <|endoftext|> too"


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_tokens_are_of_the_type_that_was_asked_for(dtype: type) -> None:
    texts = pa.array(["a word", "", "another"], pa.string())
    tokens, offsets = vocabulary().encode_documents(texts, dtype)
    assert tokens.dtype == dtype and offsets.dtype == np.int64
    assert tokens.tolist() == [t for text in texts.to_pylist() for t in (*vocabulary().encode(text), END_ID)]
    nothing, offsets = vocabulary().encode_documents([], dtype)
    assert nothing.dtype == dtype and len(nothing) == 0 and offsets.tolist() == [0]


def test_a_type_that_cannot_hold_the_ids_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="uint8 cannot hold 600 ids"):
        vocabulary().encode_documents(["a"], np.uint8)


def test_lone_surrogate_is_named() -> None:
    with pytest.raises(InputError, match="document 1 .*surrogate"):
        vocabulary().encode_documents(["good", "bad \ud83d"])
    with pytest.raises(InputError, match="character 4"):
        vocabulary().encode("bad \ud83d")


def test_storage_type_follows_the_size() -> None:
    sizes = (32_000, 65_536, 65_537, 100_000)
    assert [token_dtype(size).name for size in sizes] == ["uint16", "uint16", "uint32", "uint32"]


def test_a_folder_holds_one_vocabulary_and_may_name_its_end(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither tokenizer.model nor tokenizer.json"):
        vocabulary_file(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(model())
    assert vocabulary_file(tmp_path).name == "tokenizer.model"
    assert Vocabulary.load_folder(tmp_path).end_id == END_ID
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<s>"}}')
    assert Vocabulary.load_folder(tmp_path).end_id == BEGINNING_ID
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(InputError, match="tokenizer_config.json cannot be read"):
        Vocabulary.load_folder(tmp_path)


@pytest.mark.parametrize("token", ['{"lstrip": false}', '{"content": 7}', "{}", '["</s>"]', "7", "false"])
def test_a_configured_end_that_is_no_piece_is_the_users_mistake(tmp_path: Path, token: str) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model())
    (tmp_path / "tokenizer_config.json").write_text(f'{{"eos_token": {token}}}')
    with pytest.raises(InputError, match=r"tokenizer_config.json: eos_token is .*mend it, or remove the file"):
        Vocabulary.load_folder(tmp_path)


@pytest.mark.parametrize("config", ["{}", '{"eos_token": null}', '{"eos_token": ""}'])
def test_without_a_configured_end_it_is_the_models_own(tmp_path: Path, config: str) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model())
    (tmp_path / "tokenizer_config.json").write_text(config)
    assert Vocabulary.load_folder(tmp_path).end_id == END_ID


def test_the_largest_vocabulary_of_a_word_table_is_what_its_kernels_hold() -> None:
    assert MAX_TABLE_SIZE == 1 << ID_BITS


def test_no_model_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        SentencePieceVocabulary(b"not a model")


def test_an_end_that_is_no_special_piece_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"no special piece '<eod>'; set tokenizer.end_token .*'<s>', '</s>'"):
        SentencePieceVocabulary(model(), "<eod>")
    without = sentencepiece_model(eos_id=-1, control_symbols=["<eod>"])
    with pytest.raises(InputError, match=r"names no piece that ends a document; .*'<s>', '<eod>'"):
        SentencePieceVocabulary(without)
    assert SentencePieceVocabulary(without, "<eod>").decode([2]) == ""
    typed = sentencepiece_model(user_defined_symbols=["<eod>"])
    with pytest.raises(InputError, match="no special piece '<eod>'"):
        SentencePieceVocabulary(typed, "<eod>")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"model_type": "unigram"}, "unigram segmentation"),
        ({"add_dummy_prefix": True}, "adds a dummy prefix"),
        ({"remove_extra_whitespaces": True}, "removes white space"),
        ({"normalization_rule_name": "nmt_nfkc"}, "has a normaliser that rewrites text"),
        ({"byte_fallback": False}, "has no byte pieces"),
    ],
)
def test_where_the_argument_does_not_hold_whole_documents_are_encoded(settings: dict[str, object], why: str) -> None:
    content = sentencepiece_model(**{**LOSSLESS, **settings})
    own, reference = SentencePieceVocabulary(content), sentencepiece.SentencePieceProcessor(model_proto=content)
    assert own.method == "plain" and why in own.why
    texts = [text for text in (*AWKWARD, *prose()[:5]) if "\u2581" not in text]
    tokens, offsets = own.encode_documents(texts, np.uint16)
    expected = [[*reference.encode(text), END_ID] for text in texts]
    assert [tokens[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)] == expected
    assert (own.token_bytes() is None) == (settings != {"model_type": "unigram"})


def test_a_lossless_unigram_model_keeps_every_byte() -> None:
    own = SentencePieceVocabulary(sentencepiece_model(**LOSSLESS, model_type="unigram"))
    token_bytes = own.token_bytes()
    assert token_bytes is not None
    for text in (*AWKWARD, *prose()[:3], "\u2581x\u2581"):
        tokens, _ = own.encode_documents([text])
        assert own.decode(tokens[:-1]) == text and tokens[:-1].tolist() == own.encode(text)
        assert token_bytes[tokens].sum() == len(text.encode())


def test_our_own_models_are_encoded_through_the_word_table() -> None:
    assert (vocabulary().method, vocabulary().lossless) == ("word table", True)
    assert vocabulary().special_pieces() == {"<s>": 1, "</s>": 2}
    pieces = vocabulary().ordinary_pieces()
    assert len(pieces) == 600 - NUM_CONTROL - 256 and "\u2581the" in pieces.values()


def test_a_model_with_a_normaliser_of_another_name_is_not_taken_for_lossless() -> None:
    assert not SentencePieceVocabulary(
        edited_model(lambda p: setattr(p.normalizer_spec, "name", "user_defined"))
    ).lossless


def test_models_of_several_end_tokens_give_each_document_the_chosen_one() -> None:
    out = io.BytesIO(sentencepiece_model(**LOSSLESS, control_symbols=["<|end|>", "<|im_start|>"]))
    own = SentencePieceVocabulary(out.getvalue(), "<|end|>")
    assert own.method == "word table" and own.special_pieces()["<|end|>"] == own.end_id
    tokens, offsets = own.encode_documents(["say <|end|>", "", "</s>"])
    assert np.flatnonzero(tokens == own.end_id).tolist() == (offsets[1:] - 1).tolist()
    assert not np.isin(tokens, [0, 1, 2]).any()
