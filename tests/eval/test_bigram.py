from collections import Counter
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import pytest

from eval.subject import Document, Subject
from eval.suites import Suite, TaskDefinition
from eval.tasks.bigram import BigramModel, bigram_score, count_training_text
from eval.tasks.items import Item
from tests.eval.stubs import END, characters
from tests.eval.stubs import BigramModel as StubModel


def reference(documents: list[list[int]], sequence: list[int], num_ids: int) -> float:
    """The formula of Witten and Bell, pair by pair."""
    pairs = Counter(pair for document in documents for pair in pairwise([END, *document]))
    total = sum(pairs.values())
    score = 0.0
    for a, b in pairwise([END, *sequence]):
        unigram = (sum(n for (_, y), n in pairs.items() if y == b) + 1) / (total + num_ids)
        count = sum(n for (x, _), n in pairs.items() if x == a)
        kinds = len({y for x, y in pairs if x == a})
        score += log((pairs[a, b] + kinds * unigram) / (count + kinds)) if count else log(unigram)
    return score


def test_probabilities_are_those_of_the_formula_and_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, 7, n).tolist() for n in (5, 1, 0, 12)]
    model = BigramModel.count(documents, prefix_token=END, num_ids=9)
    assert model.num_tokens == 18
    sequences = [rng.integers(1, 9, n).tolist() for n in (4, 0, 9)]
    expected = [reference(documents, sequence, 9) for sequence in sequences]
    np.testing.assert_allclose(model.log_likelihoods(sequences), expected, atol=1e-12)
    for before in range(1, 9):
        after = model.log_likelihoods([[before, token] for token in range(9)]) - model.log_likelihoods([[before]])
        assert np.exp(after).sum() == pytest.approx(1)


def test_nothing_counted_is_uniform() -> None:
    model = BigramModel.count([], prefix_token=END, num_ids=8)
    np.testing.assert_allclose(model.log_likelihoods([[3, 5], []]), [2 * log(1 / 8), 0])


def subject(texts: list[str], tmp_path: Path) -> Subject:
    from eval.scoring.scorer import Scorer

    tokenizer = characters()
    return Subject(
        scorer=Scorer(StubModel(tokenizer.size, max_length=64), prefix_token=END),
        tokenizer=tokenizer,
        heldout={},
        training=lambda most, seed: [Document(domain="d", id=str(i), text=text) for i, text in enumerate(texts)][:most],
        canaries=None,
        chat=None,
        num_parameters=1,
        model_bytes=4,
        scratch=tmp_path,
    )


def test_it_knows_what_follows_what_and_no_more(tmp_path: Path) -> None:
    judged = subject(["abab ab. " * 10, "(x) [y] (z) [w]"], tmp_path)
    model = count_training_text(judged)
    assert model is not None
    items = [
        Item(choices=("ab", "aa"), gold=0, cluster="known"),
        Item(choices=("bb", "ba"), gold=1, cluster="known"),
        Item(choices=("(q)", "(q]"), gold=0, cluster="bracket"),
        Item(choices=("[q)", "[q]"), gold=1, cluster="bracket"),
    ]
    score = bigram_score(model, items, judged)
    assert score["value"] == 0.75, "both pairs of letters, and one bracket of two"
    assert score["training_tokens"] == model.num_tokens and score["standard_error"] > 0


def test_a_sample_is_bounded_and_none_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.tasks.bigram.MOST_CHARACTERS", 100)
    monkeypatch.setattr("eval.tasks.bigram.DOCUMENT_CHARACTERS", 30)
    assert subject([], tmp_path).bigram is None and subject([""], tmp_path).bigram is None
    model = count_training_text(subject(["a" * 35, "b" * 7], tmp_path))
    assert model is not None and model.num_tokens == 37
    many = subject(["a" * 30] * 5, tmp_path)
    assert many.bigram is many.bigram and many.bigram is not None and many.bigram.num_tokens == 100


def test_a_task_is_told_with_it(tmp_path: Path) -> None:
    from eval.sources import SOURCES

    task = TaskDefinition(name="bracket_1", source="template", version=1, limit=12)
    suite = Suite(name="s", axis="capability", version=1, tasks=(task,))
    result = SOURCES["template"].run(suite, task, subject(["x = f(a)"], tmp_path), None)
    assert result.facts()["bigram"] == result.details["bigram"] and 0 <= result.details["bigram"]["value"] <= 1
    without = SOURCES["template"].run(suite, task, subject([], tmp_path), None)
    assert "bigram" not in without.details and without.items == result.items
