"""The figures of a tokenizer are those of the documents that were measured, counted by hand here."""

import numpy as np
import pyarrow as pa
import pytest

from data.order.permutation import permute
from data.vocabulary.token_statistics import Count, count_words, measure_tokens
from tests.data.language.test_identification import TEXTS
from tests.data.texts import prose, vocabulary


def column(*texts: str) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.large_string())])


def test_figures_are_those_of_the_documents() -> None:
    texts = {"prose": column(*prose()[:5]), "other": column(TEXTS["de"], "", TEXTS["zh"])}
    found = measure_tokens(vocabulary(), texts, domain_bytes=10**9, seed=1)
    tokens = [vocabulary().encode(text) for text in prose()[:5]]
    measured = found.by_domain["prose"]
    assert measured.documents == 5 and measured.tokens == sum(map(len, tokens))
    assert measured.bytes == sum(len(text.encode()) for text in prose()[:5])
    assert measured.words == sum(count_words(text) for text in prose()[:5])
    assert found.by_domain["other"].documents == 3 and found.lossy_documents == 0
    assert set(found.by_language) == {"de", "en", "unknown", "zh"} and list(found.by_language) == sorted(
        found.by_language
    )
    assert found.by_language["de"].bytes == len(TEXTS["de"].encode())
    assert sum(count.tokens for count in found.by_language.values()) == sum(
        count.tokens for count in found.by_domain.values()
    )
    assert found.used.sum() == sum(count.tokens for count in found.by_domain.values()) + 8, "and one end for each"


def test_words_are_runs_of_letters_and_single_han_characters() -> None:
    words = {"": 0, " ": 0, "one": 1, "two words": 2, "a-b_c 1": 4, "\u6751\u91cc": 2, "\u00e9t\u00e9!": 1}
    assert {text: count_words(text) for text in words} == words


def test_ratios_of_nothing_are_none() -> None:
    assert Count().facts()["bytes_per_token"] is None and Count().facts()["fertility"] is None
    assert Count(documents=1, bytes=8, words=2, tokens=4).facts() == {
        "documents": 1, "bytes": 8, "tokens": 4, "bytes_per_token": 2.0, "fertility": 2.0
    }  # fmt: skip


def test_documents_are_drawn_until_the_bytes_are_reached_and_follow_the_seed() -> None:
    texts = {"d": column(*[f"{i:03} " + "x" * 96 for i in range(200)])}
    one, again, other = (measure_tokens(vocabulary(), texts, domain_bytes=950, seed=seed) for seed in (1, 1, 2))
    assert one.by_domain["d"].documents == 10
    assert (one.used == again.used).all() and (one.used != other.used).any()


def test_the_drawn_order_is_one_whole_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is worked out in parts, of which no more are made than are read."""
    texts = {"d": column(*[f"{i:03} " + "x" * 96 for i in range(200)])}
    whole = measure_tokens(vocabulary(), texts, domain_bytes=5_000, seed=1)
    made: list[int] = []

    def counted(places: np.ndarray, size: int, key: int) -> np.ndarray:
        made.extend(places.tolist())
        return permute(places, size, key)

    monkeypatch.setattr("data.vocabulary.token_statistics.DRAWN_TOGETHER", 7)
    monkeypatch.setattr("data.vocabulary.token_statistics.permute", counted)
    parts = measure_tokens(vocabulary(), texts, domain_bytes=5_000, seed=1)
    assert whole.by_domain["d"].documents == 50 and (whole.used == parts.used).all()
    assert made == list(range(56))


def test_unused_pieces_are_those_that_no_text_used() -> None:
    found = measure_tokens(vocabulary(), {"d": column("the the", "on")}, domain_bytes=100, seed=1)
    unused = found.unused_pieces(vocabulary())
    used = {token for text in ("the the", "on") for token in vocabulary().encode(text)}
    pieces = vocabulary().ordinary_pieces()
    assert unused == [piece for token, piece in pieces.items() if token not in used]
    assert 0 < len(unused) < len(pieces)


def test_a_domain_without_text_is_measured_too() -> None:
    found = measure_tokens(vocabulary(), {"d": column(), "e": column("")}, domain_bytes=100, seed=1)
    assert [found.by_domain[domain].documents for domain in "de"] == [0, 1]
