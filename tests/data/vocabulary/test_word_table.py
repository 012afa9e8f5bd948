"""The table of words gives the ids of SentencePiece, whatever the text, the table's fill and the model's scores."""

import random
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from data.vocabulary import word_kernels, word_table
from data.vocabulary.merge_kernels import ID_BITS, NO_MERGES, merge, merges_of
from data.vocabulary.sentencepiece import NORMAL, UNUSED, SentencePieceVocabulary
from data.vocabulary.vocabulary import END_ID
from data.vocabulary.word_table import WordTable, joined_pairs
from tests.data.texts import AWKWARD, code, model, prose, vocabulary
from tests.data.vocabulary.foreign import LOSSLESS, edited_model, sentencepiece_model

mixed = st.one_of(
    st.text(),
    st.text(alphabet=" \n\t.:#=()az0\u2581\u2585\u00e9\0"),
    st.text(alphabet="ethainsor \u00e9", min_size=20, max_size=300),
    st.builds(lambda text, n: text * n, st.text(min_size=1, max_size=4), st.integers(1, 200)),
    st.builds(
        lambda text, a, b: text[a : a + b], st.sampled_from(prose() + code()), st.integers(0, 5000), st.integers(0, 400)
    ),
)


def documents(own: SentencePieceVocabulary, texts: Sequence[str]) -> list[list[int]]:
    tokens, offsets = own.encode_documents(texts, np.uint16)
    return [tokens[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)]


def assert_equal(own: SentencePieceVocabulary, content: bytes, texts: Sequence[str]) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_proto=content)
    assert own.method == "word table"
    for text, found in zip(texts, documents(own, texts), strict=True):
        assert found == [*own.encode(text), own.end_id]
        if "\u2581" not in text:
            assert found == [*reference.encode(text), own.end_id]


@settings(max_examples=150, deadline=None)
@given(st.lists(mixed, max_size=8))
def test_ids_are_those_of_sentencepiece(texts: list[str]) -> None:
    assert_equal(vocabulary(), model(), texts)


def shuffled_scores(proto: Any) -> None:
    """Few different scores, so that the place decides too."""
    draw = random.Random(1)
    for piece in proto.pieces:
        if piece.type == NORMAL:
            piece.score = -float(draw.randrange(6))


def some_unused(proto: Any) -> None:
    for piece in [piece for piece in proto.pieces if piece.type == NORMAL and len(piece.piece) == 2][::3]:
        piece.type = UNUSED


def no_single_letters(proto: Any) -> None:
    """Pieces that hold an "e" are left, without "e" itself."""
    kept = [piece for piece in proto.pieces if piece.piece != "e"]
    del proto.pieces[:]
    proto.pieces.extend(kept)


FOREIGN = {
    "equal scores": edited_model(shuffled_scores),
    "unused pieces": edited_model(some_unused),
    "a character without a piece": edited_model(no_single_letters),
    "symbols of the user": sentencepiece_model(**LOSSLESS, user_defined_symbols=["\n", "<tab>", "ab", "the  end"]),
    "pieces across words": sentencepiece_model(**LOSSLESS, split_by_whitespace=False, split_by_unicode_script=False),
}
VOCABULARIES = {name: SentencePieceVocabulary(content) for name, content in FOREIGN.items()}


@pytest.mark.parametrize("kind", FOREIGN)
@settings(max_examples=40, deadline=None)
@given(st.lists(mixed, max_size=4))
def test_ids_are_those_of_sentencepiece_for_models_made_elsewhere(kind: str, texts: list[str]) -> None:
    assert_equal(VOCABULARIES[kind], FOREIGN[kind], texts)


@pytest.mark.parametrize("kind", FOREIGN)
def test_real_text_under_models_made_elsewhere(kind: str) -> None:
    assert_equal(VOCABULARIES[kind], FOREIGN[kind], [*AWKWARD, *prose()[:8], *code()[:2], "the  end<tab>ab"])


def test_what_merges_itself_and_what_asks_the_library() -> None:
    asks = {kind: own._merges is NO_MERGES for kind, own in VOCABULARIES.items()}
    assert asks == {
        "equal scores": False,
        "unused pieces": True,
        "a character without a piece": True,
        "symbols of the user": True,
        "pieces across words": False,
    }


def table(own: SentencePieceVocabulary, **settings: Any) -> WordTable:
    return WordTable(joined=own._joined, merges=own._merges, encode=own.encode, end_id=END_ID, **settings)


def encode_all(made: WordTable, texts: Sequence[str]) -> np.ndarray:
    parts = []
    for text in texts:
        data = np.frombuffer(text.encode(), np.uint8)
        parts.append(made.encode(data, np.array([0, len(data)], np.int64), np.dtype(np.uint16))[0])
    return np.concatenate(parts)


@pytest.mark.parametrize("kind", ["own", "unused pieces"])
def test_a_table_that_grows_and_starts_anew_is_exact(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = vocabulary() if kind == "own" else VOCABULARIES[kind]
    texts = [text[:3000] for text in prose()[:30]] + ["=" * n for n in range(1, 300, 7)]
    expected = np.concatenate([[*own.encode(text), END_ID] for text in texts])
    monkeypatch.setattr(word_table, "FIRST_SLOTS", 4)
    monkeypatch.setattr(word_table, "FIRST_ROOM", 1)
    whole, small, narrow = table(own), table(own, max_words=50), table(own)
    assert np.array_equal(encode_all(whole, texts), expected) and whole.num_words > 500
    assert np.array_equal(encode_all(small, texts), expected) and small.num_words <= 100
    monkeypatch.setattr(word_table, "MAX_SPILLED_BYTES", 100)
    assert np.array_equal(encode_all(narrow, texts), expected) and narrow.num_words < whole.num_words


def test_words_of_equal_hashes_are_told_apart() -> None:
    """Slots of one place and one key: only the texts differ."""
    own, long_bytes = vocabulary(), np.zeros(4096, np.uint8)
    slots, used = np.zeros((64, 4), np.uint64), np.zeros(3, np.int64)
    texts = [bytes([letter]) * 40 for letter in b"abc"]
    data = np.frombuffer(b"".join(texts), np.uint8)
    first, second = word_kernels.key_of(data, 0, 40)
    for number in range(3):
        start = 40 * number
        slot = word_kernels.find_slot(slots, first, second, data, start, start + 40, long_bytes)
        assert slots[slot, 1] == 0, "no other word is taken for this one"
        place = used[word_kernels.LONG_BYTES]
        long_bytes[place : place + 40] = data[start : start + 40]
        slots[slot] = first, second, number, place
        used[word_kernels.LONG_BYTES] += 40
    for number in range(3):
        slot = word_kernels.find_slot(slots, first, second, data, 40 * number, 40 * number + 40, long_bytes)
        assert slots[slot, 2] == number
    assert own.method == "word table"


@given(st.binary(min_size=1, max_size=15), st.binary(min_size=1, max_size=15))
def test_a_short_word_is_its_own_key(one: bytes, other: bytes) -> None:
    padded = [np.frombuffer(text + b"x" * word_kernels.PADDING, np.uint8) for text in (one, other)]
    keys = [word_kernels.key_of(data, 0, len(text)) for data, text in zip(padded, (one, other), strict=True)]
    assert (keys[0] == keys[1]) == (one == other)


def reference_merge(text: str, ranks: dict[str, int]) -> list[str]:
    """Byte-pair encoding in a few lines: the best neighbours first, the leftmost of equals."""
    symbols = list(text)
    while True:
        pairs = [
            (ranks[a + b], i) for i, (a, b) in enumerate(zip(symbols, symbols[1:], strict=False)) if a + b in ranks
        ]
        if not pairs:
            return symbols
        _, i = min(pairs)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab\u00e9\U0001f680", min_size=2, max_size=5), max_size=12, unique=True),
    st.lists(st.integers(0, 3), min_size=16, max_size=16),
    st.text("ab\u00e9\U0001f680z\u4e2d", min_size=1, max_size=40),
)
def test_merging_is_byte_pair_encoding(longer: list[str], scores: list[int], text: str) -> None:
    pieces = ["a", "b", "\u00e9", "\U0001f680", *longer]
    ranks = dict(zip(pieces, scores, strict=False))
    ids = {piece: 300 + number for number, piece in enumerate(pieces)}
    merges = merges_of(pieces, list(ids.values()), [-float(ranks[piece]) for piece in pieces], list(range(256)))
    data = np.frombuffer(text.encode(), np.uint8)
    found, scratch = np.empty(256, np.int64), np.empty((3, 256), np.int64)
    count = merge(data, 0, len(data), merges.slots, merges.byte_ids, found, scratch)
    expected = [i for s in reference_merge(text, ranks) for i in ([ids[s]] if s in ids else list(s.encode()))]
    assert found[:count].tolist() == expected and max(ids.values()) < 1 << ID_BITS


def test_no_piece_spans_a_place_where_text_is_cut() -> None:
    joined = joined_pairs([b"", b"ab", b" a", "\u00e9t".encode()])
    assert joined[ord("a"), ord("b")] and joined[ord(" "), ord("a")] and joined[0xA9, ord("t")]
    assert not joined[ord("b"), ord("a")] and not joined[ord("a"), ord(" ")]
    assert joined[ord("x"), 0xA9], "a text must never be cut inside a character"


def test_threads_share_a_vocabulary() -> None:
    texts = pa.array([text[:2000] for text in prose()], pa.large_string())
    own = SentencePieceVocabulary(model())
    expected, _ = own.encode_documents(texts)
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.append(own.encode_documents(texts)[0])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and all(np.array_equal(tokens, expected) for tokens in found)


def test_a_document_of_one_long_word_is_encoded_whole() -> None:
    assert_equal(vocabulary(), model(), ["a" * 100_000, "e\u0301" * 3000, "=" * 255, "=" * 256, "="])
