import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from eval.compare import significance
from eval.compare.significance import (
    DRAWN,
    EXACT,
    MCNEMAR,
    draws_for,
    holm,
    least_of_ranks,
    least_of_signs,
    rank_test,
    sign_test,
)


def by_hand(sums):
    """The share of all patterns of signs whose total is as far from 0."""
    total = abs(sum(sums))
    patterns = itertools.product((-1, 1), repeat=len(sums))
    return np.mean([abs(sum(s * x for s, x in zip(signs, sums, strict=True))) >= total - 1e-9 for signs in patterns])


@pytest.mark.parametrize(("worsened", "improved"), [(0, 0), (1, 7), (12, 12), (30, 2), (700, 300)])
def test_of_single_items_it_is_mcnemars_exact_test(worsened, improved):
    p_value, _ = sign_test(np.array([-1.0] * worsened + [1.0] * improved + [0.0] * 9))
    moved = worsened + improved
    assert p_value == pytest.approx(binomtest(worsened, moved).pvalue if moved else 1.0, rel=1e-9)


def test_says_which_test_it_was():
    assert sign_test(np.array([1.0, -1, 0]))[1] == MCNEMAR
    assert sign_test(np.array([1.0, -2, 0]))[1] == EXACT
    assert sign_test(np.array([0.5, -0.25]))[1] == EXACT
    assert sign_test(np.linspace(-0.3, 1, 40))[1] == DRAWN


@given(st.lists(st.integers(-6, 6), max_size=11))
def test_whole_numbers_are_counted_exactly(sums):
    assert sign_test(np.array(sums, np.float64))[0] == pytest.approx(by_hand([x for x in sums if x]))


@given(st.lists(st.integers(-50, 50).map(lambda x: x / 7), max_size=9))
def test_few_clusters_are_enumerated(sums):
    assert sign_test(np.array(sums))[0] == pytest.approx(by_hand([x for x in sums if x]))


def test_drawn_signs_agree_with_all_of_them(monkeypatch):
    sums = np.random.default_rng(3).normal(0.3, 1, 14)
    exact, name = sign_test(sums)
    monkeypatch.setattr(significance, "EXACT_CLUSTERS", 0)
    drawn, drawn_name = sign_test(sums)
    assert (name, drawn_name) == (EXACT, DRAWN)
    assert drawn == pytest.approx(exact, abs=4 * (exact * (1 - exact) / significance.DRAWS) ** 0.5)
    assert drawn != exact


def test_dependent_items_of_a_cluster_count_as_one():
    ten_clusters = np.array([8.0] * 9 + [-8.0])
    assert sign_test(ten_clusters)[0] == pytest.approx(binomtest(1, 10).pvalue)
    assert sign_test(np.array([1.0] * 72 + [-1.0] * 8))[0] < 1e-10


def test_holm_corrects_as_published():
    # Holm 1979: the smallest times the number of tests, the next times one less, never falling
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    )
    assert holm({"a": 0.7, "b": 0.9}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_rank_test_of_equal_and_of_shifted_samples():
    rng = np.random.default_rng(0)
    rounds = rng.normal(1, 0.05, 12)
    assert rank_test(rounds, rounds) > 0.9
    assert rank_test(np.ones(9), np.ones(9)) == 1.0
    assert rank_test(rounds * 2, rounds) < 1e-4


@pytest.mark.parametrize("num", [1, 4, 7])
def test_the_least_p_values_are_those_of_the_tests(num):
    assert least_of_signs(num) == sign_test(np.full(num, 0.3))[0]
    assert least_of_ranks(num, num + 1) == pytest.approx(rank_test(np.arange(num) + 100.0, np.arange(num + 1.0)))


def test_a_strict_level_has_draws_enough():
    sums = np.linspace(0.1, 1, 40)
    for level, num_tasks in ((0.01, 30), (0.0005, 60)):
        p_value, name = sign_test(sums, draws=draws_for(level, num_tasks))
        assert name == DRAWN and p_value * num_tasks <= level / 2


def test_very_many_whole_numbers_are_drawn(monkeypatch):
    sums = np.tile([3.0, -1.0, -2.0, 1.0, 2.0], 4)
    exact, _ = sign_test(sums)
    monkeypatch.setattr(significance, "MOST_COUNTED", 10)
    drawn, name = sign_test(sums)
    assert name == DRAWN and drawn == pytest.approx(exact, rel=0.3)
