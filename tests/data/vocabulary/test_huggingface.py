"""A tokenizer.json is used as data: text stays text, nothing is added, nothing is cut."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import InputError
from data.vocabulary.huggingface import HuggingFaceVocabulary
from data.vocabulary.vocabulary import Vocabulary
from tests.data.texts import AWKWARD, prose
from tests.data.vocabulary.foreign import byte_level_json

END = "<|endoftext|>"


def made(**settings: object) -> HuggingFaceVocabulary:
    return HuggingFaceVocabulary(byte_level_json(**settings), END)


@pytest.mark.parametrize("adds_special", [False, True])
def test_each_document_has_one_end_and_nothing_is_added_or_cut(adds_special: bool) -> None:
    own = made(adds_special=adds_special)
    texts = ["a", "", f"use {END} to end, <|begin|> too", "b c d e f g h i j k l m n o p", *AWKWARD]
    tokens, offsets = own.encode_documents(texts, np.uint16)
    assert np.flatnonzero(tokens == own.end_id).tolist() == (offsets[1:] - 1).tolist()
    assert not (tokens == 1).any(), "no beginning"
    for number, text in enumerate(texts):
        found = tokens[offsets[number] : offsets[number + 1] - 1]
        assert own.decode(found) == text and found.tolist() == own.encode(text)


def test_what_the_file_would_add_is_the_negative_control() -> None:
    from tokenizers import Tokenizer

    assert len(Tokenizer.from_str(byte_level_json(adds_special=True).decode()).encode("b c d e f g h i j").ids) == 9
    assert 0 in Tokenizer.from_str(byte_level_json().decode()).encode(f"use {END}").ids


@given(st.text())
def test_byte_level_ids_stand_for_bytes(text: str) -> None:
    own = made()
    token_bytes = own.token_bytes()
    assert token_bytes is not None and len(token_bytes) == own.size == 401
    tokens, _ = own.encode_documents([text])
    assert token_bytes[tokens].sum() == len(text.encode()) and own.decode(tokens) == text


def test_real_text_comes_back() -> None:
    own = made()
    tokens, offsets = own.encode_documents(prose()[:10])
    assert [own.decode(tokens[a:b]) for a, b in zip(offsets, offsets[1:], strict=False)] == list(prose()[:10])


@pytest.mark.parametrize("loses", ["prefix_space", "nfc"])
def test_what_changes_text_has_no_bytes_for_its_ids(loses: str) -> None:
    assert made(**{loses: True}).token_bytes() is None


def test_an_added_piece_of_ordinary_text_is_kept() -> None:
    own = made()
    assert own.encode("zyzzyva  ") == [400] and own.decode([400]) == "zyzzyva  "
    assert own.ordinary_pieces()[400] == "zyzzyva  " and 0 not in own.ordinary_pieces()
    assert own.special_pieces() == {END: 0, "<|begin|>": 1}


@pytest.mark.parametrize(("end", "problem"), [("", "does not say which piece"), ("zyzzyva  ", "no special piece")])
def test_an_end_is_needed_that_text_never_becomes(end: str, problem: str) -> None:
    with pytest.raises(InputError, match=rf"{problem}.*tokenizer.end_token.*'<\|endoftext\|>', '<\|begin\|>'"):
        HuggingFaceVocabulary(byte_level_json(), end)


def test_an_end_that_text_becomes_is_refused() -> None:
    """A special piece that merging reaches too."""
    values = json.loads(byte_level_json())
    piece = "in"
    values["added_tokens"].append(
        {**values["added_tokens"][0], "id": values["model"]["vocab"][piece], "content": piece}
    )
    with pytest.raises(InputError, match="reads its piece 'in' out of ordinary text"):
        HuggingFaceVocabulary(json.dumps(values).encode(), piece)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"model": {"type": "Strange"}}'])
def test_what_is_no_tokenizer_is_refused(content: bytes) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        HuggingFaceVocabulary(content, END)


def test_lone_surrogate_is_named() -> None:
    with pytest.raises(InputError, match="character 4"):
        made().encode("bad \ud83d")


def test_a_folder_of_hugging_face_is_loaded_with_its_own_end(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(byte_level_json())
    with pytest.raises(InputError, match="does not say"):
        Vocabulary.load_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    loaded = Vocabulary.load_folder(tmp_path)
    assert (loaded.method, loaded.end_id, loaded.size) == ("plain", 0, 401) and "whole" in loaded.why
