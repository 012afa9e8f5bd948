import gzip
import math

import pytest

from eval.bits_per_byte import DocumentScore, HeldoutDocument, baselines, bits_per_byte, choose, score_documents
from eval.scoring.scorer import Scorer
from tests.eval.stubs import END, BigramModel, characters

TEXTS = [(f"id{i}", f"document {i} " + "\u00e9\u4e2d\U0001f680" * (i % 7)) for i in range(40)]


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 100, 333, 10**6])
def test_what_is_chosen_fits_and_is_cut_at_a_character(max_bytes: int) -> None:
    chosen = choose(TEXTS, max_bytes=max_bytes, seed=0)
    total = sum(document.num_bytes for document in chosen)
    everything = sum(len(text.encode()) for _, text in TEXTS)
    assert total <= max_bytes and total > min(max_bytes, everything) - 4, "less than one character is left over"
    originals = dict(TEXTS)
    whole = [originals[document.id] == document.text for document in chosen]
    assert all(originals[document.id].startswith(document.text) for document in chosen)
    assert whole.count(False) <= 1
    places = [list(originals).index(document.id) for document in chosen]
    assert places == sorted(places)


def test_the_choice_follows_ids_and_the_seed_not_the_order() -> None:
    one, again = choose(TEXTS, max_bytes=300, seed=1), choose(TEXTS[::-1], max_bytes=300, seed=1)
    assert {document.id for document in one} == {document.id for document in again}
    assert {d.id for d in choose(TEXTS, max_bytes=300, seed=2)} != {d.id for d in one}
    assert choose([("a", ""), ("b", "x")], max_bytes=9, seed=0) == (HeldoutDocument(id="b", text="x"),)


def test_a_document_costs_the_bits_of_its_tokens_after_the_end_of_another() -> None:
    tokenizer = characters("the ")
    model = BigramModel(tokenizer.size, max_length=8)
    documents = [
        HeldoutDocument(id="a", text="the cat"),
        HeldoutDocument(id="b", text="a longer text than the model's context"),
    ]
    scores = score_documents(Scorer(model, prefix_token=END), tokenizer.encode, documents)
    for document, score in zip(documents, scores, strict=True):
        tokens = tokenizer.encode(document.text)
        wanted = -model.log_likelihood([END, *tokens], 1) / math.log(2)
        assert score.num_bits == pytest.approx(wanted, abs=1e-4)
        assert (score.num_tokens, score.num_bytes) == (len(tokens), len(document.text))


def score(bits: float, num_bytes: int) -> DocumentScore:
    return DocumentScore(id="", text_hash="", num_bytes=num_bytes, num_tokens=1, num_bits=bits)


def test_the_value_is_total_bits_over_total_bytes() -> None:
    found = bits_per_byte([score(100, 50), score(10, 2)])
    assert found.value == pytest.approx(110 / 52) and (found.num_bytes, found.num_documents) == (52, 2)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Documents drawn from a population whose ratio is known; 95 % nominal, 100 trials of 60 documents."""
    import numpy as np

    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(100):
        sizes = rng.integers(20, 400, 60)
        rates = rng.normal(2.0, 0.5, 60)
        found = bits_per_byte(
            [score(float(size * rate), int(size)) for size, rate in zip(sizes, rates, strict=True)], draws=300
        )
        covered += found.low <= 2.0 <= found.high
    assert 85 <= covered <= 100


def test_the_interval_is_the_same_every_time_and_a_point_for_one_document() -> None:
    scores = [score(100 + i**3 / 7, 50 + i) for i in range(20)]
    assert bits_per_byte(scores, seed=3) == bits_per_byte(scores, seed=3) != bits_per_byte(scores, seed=4)
    alone = bits_per_byte([score(100, 50)])
    assert alone.low == alone.value == alone.high == 2.0


def test_compressors_get_the_same_text_as_one_file() -> None:
    documents = choose(TEXTS, max_bytes=10**6, seed=0)
    text = "\n".join(document.text for document in documents)
    found = baselines(documents)
    assert found["gzip-9"] == pytest.approx(
        8 * len(gzip.compress(text.encode(), 9)) / sum(d.num_bytes for d in documents)
    )
    assert found["xz-9e"] > 0 and baselines(documents) == found
