"""A user relies on: text comes back byte for byte, the fast encoder equals SentencePiece, no text is left out of the
training sample unseen.
"""

import threading

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.vocabulary import (
    BEGINNING_ID,
    END_ID,
    NUM_CONTROL,
    UNKNOWN_ID,
    Vocabulary,
    token_dtype,
    train_vocabulary,
)
from data.word_table import WordTable, joined_pairs
from tests.data.texts import AWKWARD, code, model, prose, vocabulary


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


mixed = st.one_of(
    st.text(),
    st.text(alphabet=" \n\t.:#=()az0\u2581\u2585\u00e9\0"),
    st.builds(
        lambda text, a, b: text[a : a + b], st.sampled_from(prose() + code()), st.integers(0, 5000), st.integers(0, 400)
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(mixed, max_size=8))
def test_fast_encoder_equals_sentencepiece(texts: list[str]) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_proto=model())
    tokens, offsets = vocabulary().encode_documents(texts)
    assert (
        tokens.dtype == np.uint16 and offsets.dtype == np.int64 and offsets[0] == 0 and len(offsets) == len(texts) + 1
    )
    for number, text in enumerate(texts):
        found = tokens[offsets[number] : offsets[number + 1]].tolist()
        assert found == [*vocabulary().encode(text), END_ID]
        if "\u2581" not in text:
            assert found == [*reference.encode(text), END_ID]


def test_fast_encoder_is_exact_when_the_table_overflows_and_when_hashes_collide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = pa.array([text[:3000] for text in prose()[:30]], pa.large_string())
    expected, _ = vocabulary().encode_documents(texts)
    own = vocabulary()

    def encode_all(table: WordTable) -> np.ndarray:
        parts = []
        for text in texts.to_pylist():
            data = np.frombuffer(text.encode(), np.uint8)
            parts.append(table.encode(data, np.array([0, len(data)], dtype=np.int64))[0])
        return np.concatenate(parts)

    small = WordTable(
        pieces=own.pieces(), encode=own.encode, end_id=END_ID, dtype=own.dtype, max_words=50, max_word_bytes=200
    )
    assert np.array_equal(encode_all(small), expected)
    monkeypatch.setattr("data.word_table.hash_words", lambda data, starts: np.full(len(starts) - 1, 7, np.uint64))
    colliding = WordTable(pieces=own.pieces(), encode=own.encode, end_id=END_ID, dtype=own.dtype)
    assert np.array_equal(encode_all(colliding), expected)


def test_no_piece_spans_a_place_where_text_is_cut() -> None:
    joined = joined_pairs([b"", b"ab", b" a", "\u00e9t".encode()])
    assert joined[ord("a"), ord("b")] and joined[ord(" "), ord("a")] and joined[0xA9, ord("t")]
    assert not joined[ord("b"), ord("a")] and not joined[ord("a"), ord(" ")]
    assert joined[ord("x"), 0xA9], "a text must never be cut inside a character"


def test_threads_share_a_vocabulary() -> None:
    texts = [text[:2000] for text in prose()]
    own = Vocabulary(model())
    expected, _ = own.encode_documents(texts)
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.append(own.encode_documents(texts)[0])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and all(np.array_equal(tokens, expected) for tokens in found)


def test_each_document_has_exactly_one_end_and_no_beginning() -> None:
    tokens, offsets = vocabulary().encode_documents(["a", "", "use </s> to end, <|endoftext|> too", "b"])
    assert (tokens == END_ID).sum() == 4 and (tokens[offsets[1:] - 1] == END_ID).all()
    assert offsets[2] - offsets[1] == 1
    assert not np.isin(tokens, [BEGINNING_ID, UNKNOWN_ID]).any()
    assert vocabulary().decode(tokens[offsets[2] : offsets[3]]) == "use </s> to end, <|endoftext|> too"


def test_no_documents() -> None:
    tokens, offsets = vocabulary().encode_documents([])
    assert tokens.dtype == np.uint16 and len(tokens) == 0 and offsets.tolist() == [0]


def test_lone_surrogate_is_named() -> None:
    with pytest.raises(InputError, match="document 1 .*surrogate"):
        vocabulary().encode_documents(["good", "bad \ud83d"])
    with pytest.raises(InputError, match="character 4"):
        vocabulary().encode("bad \ud83d")


def test_training_twice_gives_the_same_bytes() -> None:
    chunks = [text[:3000] for text in prose()[:10]]
    assert train_vocabulary(chunks, size=400) == train_vocabulary(chunks, size=400)


def test_null_character_in_training_text() -> None:
    trained = Vocabulary(train_vocabulary(["a\0b word"] * 50, size=272))
    assert trained.decode(trained.encode("a\0b word\0")) == "a\0b word\0"


def test_too_little_text_names_the_largest_size() -> None:
    chunks = ["the quick brown fox jumps over the lazy dog"] * 5
    with pytest.raises(InputError, match="at most 336") as raised:
        train_vocabulary(chunks, size=2048, multiple=16)
    assert "too small" in str(raised.value)
    train_vocabulary(chunks, size=336)
    with pytest.raises(InputError, match="at least 288"):
        train_vocabulary(chunks, size=264, multiple=8)
    with pytest.raises(InputError, match="no text"):
        train_vocabulary([], size=300)


def test_storage_type_follows_the_size() -> None:
    sizes = (32_000, 65_536, 65_537, 100_000)
    assert [token_dtype(size).name for size in sizes] == ["uint16", "uint16", "uint32", "uint32"]


def test_foreign_models_are_refused() -> None:
    import io

    with pytest.raises(InputError, match="cannot be read"):
        Vocabulary(b"not a model")
    for change in ({"add_dummy_prefix": True}, {"normalization_rule_name": "nmt_nfkc"}, {"byte_fallback": False}):
        out = io.BytesIO()
        settings = {"byte_fallback": True, "normalization_rule_name": "identity", "add_dummy_prefix": False} | change
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(prose()[:5]), model_writer=out, model_type="bpe", vocab_size=400, pad_id=-1,
            remove_extra_whitespaces=False, minloglevel=2, max_sentence_length=10**6, **settings,
        )  # fmt: skip
        with pytest.raises(InputError, match="settings"):
            Vocabulary(out.getvalue())
