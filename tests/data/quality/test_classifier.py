"""The quality classifier: its kernels against plain Python, what it learns, and what it says of itself."""

import math
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.quality import classifier_kernels
from data.quality.classifier import KIND, Classifier
from data.quality.classifier_training import TrainingSettings, measure, train_classifier
from data.reading.tables import text_buffers
from data.text.model_file import write_model
from data.text.model_tokens import next_token

BITS = 12
TEXTS = st.text(st.sampled_from("ab Ab1. ,\n中文é"), max_size=40)
MASK = (1 << 64) - 1


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def reference_features(text: str, bits: int) -> list[int]:
    values = np.frombuffer(text.encode(), np.uint8)
    hashes, i = [], 0
    while True:
        h, _, i = next_token(values, i, len(values))
        if h == 0:
            break
        hashes.append(int(h))
    found = []
    for k, h in enumerate(hashes):
        found.append((h * 0x9E3779B97F4A7C15 & MASK) >> 64 - bits)
        if k:
            pair = hashes[k - 1] * 0xD6E8FEB86659FD93 & MASK ^ h
            found.append(((pair ^ pair >> 31) * 0x9E3779B97F4A7C15 & MASK) >> 64 - bits)
    return found


def weights_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=1 << BITS).astype(np.float32)


@given(TEXTS, st.integers(2, 28))
@settings(max_examples=200, deadline=None)
def test_features_are_those_of_the_reference(text: str, bits: int) -> None:
    content = text.encode()
    out = np.empty(2 * len(content) + 1, np.int32)
    n = classifier_kernels.features(np.frombuffer(content, np.uint8), 0, len(content), bits, out)
    assert out[:n].tolist() == reference_features(text, bits)


@given(st.lists(TEXTS, max_size=6), st.floats(-3, 3))
@settings(max_examples=100, deadline=None)
def test_scores_are_those_of_the_reference(texts: list[str], bias: float) -> None:
    weights = weights_of(1)
    model = Classifier(bits=BITS, bias=bias, weights=weights, report={})
    for text, found in zip(texts, model.score(column(texts)), strict=True):
        buckets = reference_features(text, BITS)
        mean = sum(float(weights[bucket]) for bucket in buckets) / max(1, len(buckets))
        assert found == pytest.approx(1 / (1 + math.exp(-(bias + mean))), abs=1e-6)


@given(st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_a_pass_of_training_is_that_of_the_reference(labelled: list[tuple[str, bool]], drawn: random.Random) -> None:
    texts, is_good = column([text for text, _ in labelled]), np.array([good for _, good in labelled])
    order = np.array(drawn.sample(range(len(labelled)), len(labelled)), np.int64)
    rate, class_weights = 0.5, np.array([0.75, 1.5])
    weights, squares, bias = weights_of(2), np.zeros(1 << BITS, np.float32), np.array([0.25, 0.0])
    expected, expected_squares, expected_bias = weights.astype(float), np.zeros(1 << BITS), bias.copy()
    for d in order:
        buckets = reference_features(labelled[d][0], BITS)
        if not buckets:
            continue
        probability = 1 / (1 + math.exp(-(expected_bias[0] + np.mean(expected[buckets]))))
        gradient = class_weights[int(is_good[d])] * (probability - is_good[d])
        expected_bias[1] += gradient**2
        expected_bias[0] -= rate * gradient / math.sqrt(expected_bias[1] + 1e-12)
        for bucket in set(buckets):
            slope = gradient * buckets.count(bucket) / len(buckets)
            expected_squares[bucket] += slope**2
            expected[bucket] -= rate * slope / math.sqrt(expected_squares[bucket] + 1e-12)
    values, offsets = text_buffers(texts)
    classifier_kernels.train(values, offsets, is_good, order, rate, class_weights, BITS, weights, squares, bias)
    assert np.allclose(weights, expected, atol=1e-4)
    assert bias == pytest.approx(expected_bias, abs=1e-6)


def sets(good: int = 400, bad: int = 250, seed: int = 0) -> tuple[list[str], list[str]]:
    """Sentences of a language, and the same words without its order and with stray signs."""
    drawn = random.Random(seed)
    subjects, verbs, objects = (
        ["the teacher", "a farmer", "my neighbour", "the old man", "her sister"],
        ["wrote", "carried", "found", "remembered", "painted"],
        ["a long letter", "the heavy basket", "an empty house", "his first journey", "two small birds"],
    )

    def sentence() -> str:
        return f"{drawn.choice(subjects)} {drawn.choice(verbs)} {drawn.choice(objects)}".capitalize() + "."

    def noise() -> str:
        words = " ".join(sentence() for _ in range(drawn.randint(2, 9))).split()
        drawn.shuffle(words)
        return " | ".join(words)

    return [" ".join(sentence() for _ in range(drawn.randint(2, 9))) for _ in range(good)], [
        noise() for _ in range(bad)
    ]


def test_it_learns_to_tell_two_sets_apart() -> None:
    good, bad = sets()
    model, losses = train_classifier(column(good), column(bad), TrainingSettings(bits=BITS))
    assert losses[-1] < losses[0] < 1
    report = model.report
    assert report["good_texts"] + report["good_held_out"] == len(set(good)) and report["bad_held_out"] >= 10
    assert report["auc"] > 0.99 and report["recall"] >= 0.9 and report["precision"] > 0.95
    fresh_good, fresh_bad = sets(seed=1)
    assert (model.score(column(fresh_good)) >= report["threshold"]).mean() > 0.8
    assert (model.score(column(fresh_bad)) >= report["threshold"]).mean() < 0.05


def test_sets_that_do_not_differ_cannot_be_told_apart() -> None:
    good, _ = sets(good=1200)
    model, _ = train_classifier(column(good[:600]), column(good[600:]), TrainingSettings(bits=BITS, epochs=2))
    assert 0.35 < model.report["auc"] < 0.65


def test_the_same_texts_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    good, bad = (column(texts) for texts in sets(200, 200))
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_classifier(good, bad, TrainingSettings(bits=BITS, seed=seed))[0].save(tmp_path / name)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c
    model = Classifier.load(tmp_path / "a")
    assert model.report["auc"] > 0.9 and model.bits == BITS
    scores = model.score(good)
    assert scores.dtype == np.float32 and ((scores >= 0) & (scores <= 1)).all()
    assert (scores[50:60] == model.score(good.slice(50, 10))).all(), "a slice of a column"
    assert len(model.score(column([]))) == 0


def test_copies_are_one_text_and_what_is_in_both_sets_is_in_none() -> None:
    good, bad = sets(300, 300)
    model, _ = train_classifier(
        column(good + good[:50] + bad[:7]), column(bad + bad[:50]), TrainingSettings(bits=BITS, epochs=1)
    )
    report = model.report
    assert report["texts_in_both"] == 7
    assert report["good_texts"] + report["good_held_out"] == len(set(good))
    assert report["bad_texts"] + report["bad_held_out"] == len(set(bad)) - 7


def test_too_few_texts_and_settings_without_sense_are_refused() -> None:
    good, bad = (column(texts) for texts in sets(200, 200))
    with pytest.raises(InputError, match="different bad texts"):
        train_classifier(good, bad.slice(0, 20), TrainingSettings(bits=BITS))
    for wrong in ({"recall": 0.0}, {"recall": 1.1}, {"epochs": 0}, {"rate": 0.0}, {"bits": 40}):
        with pytest.raises(InputError, match="choose"):
            TrainingSettings(**wrong)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=30).filter(
        lambda pairs: len({good for _, good in pairs}) == 2
    ),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
)
@settings(max_examples=200, deadline=None)
def test_what_is_measured_is_what_its_name_says(pairs: list[tuple[int, bool]], recall: float) -> None:
    scores, is_good = np.array([score / 6 for score, _ in pairs], np.float32), np.array([good for _, good in pairs])
    found = measure(scores, is_good, recall)
    good, bad = scores[is_good], scores[~is_good]
    wins = [(g > b) + (g == b) / 2 for g in good for b in bad]
    assert found["auc"] == pytest.approx(np.mean(wins), abs=1e-6)
    kept = scores >= found["threshold"]
    assert found["recall"] == pytest.approx((kept & is_good).sum() / is_good.sum(), abs=1e-6) and found["recall"] >= (
        recall - 1e-6
    )
    assert found["precision"] == pytest.approx((kept & is_good).sum() / kept.sum(), abs=1e-6)
    higher = sorted(good[good > found["threshold"]])
    assert not higher or (good >= higher[0]).mean() < recall, "no larger threshold would do"


def test_a_file_of_other_numbers_is_refused(tmp_path: Path) -> None:
    whole = {"bits": BITS, "bias": 0.0, "report": {}}
    weights = np.zeros(1 << BITS, np.float32)
    cases = [
        ({"bits": BITS + 1}, weights),
        ({"bits": "12"}, weights),
        ({"bias": None}, weights),
        ({}, weights * np.nan),
    ]
    for changed, numbers in cases:
        write_model(tmp_path / "odd", KIND, whole | changed, {"weights": numbers})
        with pytest.raises(InputError, match="train it anew"):
            Classifier.load(tmp_path / "odd")
    with pytest.raises(InputError, match="stages.curate.train classifier"):
        Classifier.load(tmp_path / "missing")
