import numpy as np
import pytest
from scipy.stats import binomtest

from eval.compare.clusters import clustered, design_effect
from eval.compare.intervals import interval
from eval.compare.power import minimal_detectable_difference
from eval.compare.task import interval_of_change


def test_of_independent_shares_it_is_wilsons():
    scores = [1.0] * 60 + [0.0] * 41
    found = interval(scores, [str(i) for i in range(101)])
    wilson = binomtest(60, 101).proportion_ci(0.95, method="wilson")
    assert found == pytest.approx((wilson.low, wilson.high), abs=5e-3)


def test_a_perfect_score_is_not_certain():
    low, high = interval([1.0] * 40, [str(i) for i in range(40)])
    assert (high, low) == (1.0, pytest.approx(0.912, abs=1e-3))
    assert interval([1.0] * 40, [str(i % 4) for i in range(40)])[0] < 0.55


def test_clusters_widen_it_and_one_has_none():
    scores = [float(i // 10 % 2) for i in range(200)]
    alone, together = (interval(scores, [str(i // size) for i in range(200)]) for size in (1, 10))
    assert together[1] - together[0] > 2.5 * (alone[1] - alone[0])
    assert interval(scores, ["one"] * 200) is None


def test_weighted_scores_are_a_ratio():
    bits, num_bytes = np.array([10.0, 90.0, 30.0]), np.array([10.0, 30.0, 20.0])
    sums = clustered(bits / num_bytes, list("abc"), num_bytes)
    assert sums.value == pytest.approx(130 / 60)
    low, high = interval(bits / num_bytes, list("abc"), list(num_bytes))
    assert 1 <= low < 130 / 60 < high <= 3


@pytest.mark.parametrize(("kind", "size"), [("shares", 40), ("ratios", 40), ("ratios", 6)])
def test_covers_the_truth_in_95_of_100(kind, size):
    rng = np.random.default_rng(5)
    covered = 0
    clusters = [str(i // 4) for i in range(4 * size)]
    for _ in range(200):
        shared = rng.normal(0, 1, size).repeat(4) + rng.normal(0, 1, 4 * size)
        scores = (shared > 0).astype(float) if kind == "shares" else shared
        low, high = interval(scores, clusters, None if kind == "shares" else list(rng.uniform(1, 3, size).repeat(4)))
        covered += low <= (0.5 if kind == "shares" else 0) <= high
    assert 180 <= covered <= 199


def test_the_detectable_difference_is_found_with_the_power_said():
    rng = np.random.default_rng(1)
    size, level = 40, 0.01
    wanted = minimal_detectable_difference(1 / size**0.5, size - 1, level)
    from scipy.stats import ttest_1samp

    found = np.mean(ttest_1samp(rng.normal(wanted, 1, (4000, size)), 0, axis=1).pvalue <= level)
    assert found == pytest.approx(0.8, abs=0.03)


def test_all_wrong_is_exactly_nothing_and_all_right_exactly_all():
    for size in range(2, 60):
        clusters = [str(i) for i in range(size)]
        assert interval([0.0] * size, clusters)[0] == 0.0
        assert interval([1.0] * size, clusters)[1] == 1.0


def test_a_fixed_preference_is_right_in_half_of_every_cluster_and_is_no_accident():
    low, high = interval([0.0, 1.0] * 100, [str(i // 8) for i in range(200)])
    assert (low, high) == (pytest.approx(0.43, abs=0.01), pytest.approx(0.57, abs=0.01))


def test_few_clusters_of_dependent_items_are_little_to_go_by():
    """Five templates of 20 items that have half of what decides in common."""
    rng = np.random.default_rng(3)
    clusters = [str(i // 20) for i in range(100)]
    covered = {"share": 0, "difference": 0}
    for _ in range(200):
        shared = (rng.normal(0, 1, 5).repeat(20) + rng.normal(0, 1, 100)) / 2**0.5
        low, high = interval(list((shared > 0).astype(float)), clusters)
        covered["share"] += low <= 0.5 <= high
        together = rng.choice([-1.0, 0.0, 1.0], 5, p=[0.2, 0.75, 0.05]).repeat(20)
        low, high, _ = interval_of_change(list(together), clusters)
        covered["difference"] += low <= -0.15 <= high
    assert min(covered.values()) >= 184  # 190 are meant


def test_the_items_of_a_cluster_that_agree_are_one():
    clusters = [str(i // 4) for i in range(40)]
    together = [float(i // 4 % 2) for i in range(40)]
    assert design_effect(together, clusters) == pytest.approx(4, rel=0.1)
    assert design_effect([float(i % 2) for i in range(40)], clusters) == 1, "each cluster has as many right"
    assert design_effect([0.0] * 40, clusters) == 4, "nothing tells that they are not one"
