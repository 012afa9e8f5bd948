"""Whether a difference could be chance, and what may be said after many such questions."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

DRAWS = 19_999  # so that the smallest p-value, 1 / 20,000, stands after the correction for a hundred tasks
EXACT_CLUSTERS = 14  # of which every pattern of signs is tried: 16,384
CELLS_AT_ONCE = 2_000_000
TIE = 1e-9  # of the sum of magnitudes: sums that differ by rounding alone are the same

MCNEMAR = "exact McNemar test"
EXACT = "exact sign test of cluster sums"
DRAWN = f"sign test of cluster sums, {DRAWS:,} draws"


def sign_test(sums: npt.NDArray[np.float64], *, seed: int = 0) -> tuple[float, str]:
    """The two-sided p-value of differences summed by cluster, float64[num_clusters], and the name of the test.

    If two models are equal, each cluster's sum is as likely as its negative, whatever the items of a cluster have in
    common. The p-value is the share of all patterns of signs whose total is at least as far from 0 as the one observed
    (Fisher's randomisation test for pairs): of 0/1 scores with an item in each cluster it is McNemar's exact test.
    Whole numbers are counted exactly, by convolution; of others all patterns are tried or, where they are too many,
    DRAWS of them drawn by `seed`, the observed one counted among them.
    """
    moved = sums[sums != 0]
    if len(moved) == 0:
        return 1.0, EXACT
    total = abs(float(moved.sum()))
    if np.array_equal(moved, np.round(moved)) and np.abs(moved).sum() < 1e5:
        name = MCNEMAR if np.all(np.abs(moved) == 1) else EXACT
        return _counted(moved.astype(np.int64), round(total)), name
    bound = total - TIE * float(np.abs(moved).sum())
    if len(moved) <= EXACT_CLUSTERS:
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * len(moved))).reshape(len(moved), -1)
        return float(np.mean(np.abs(moved @ signs) >= bound)), EXACT
    return _drawn(moved, bound, seed), DRAWN


def _counted(moved: npt.NDArray[np.int64], total: int) -> float:
    """The distribution of the total of whole numbers with random signs, exactly."""
    reach = int(np.abs(moved).sum())
    shares = np.zeros(2 * reach + 1)
    shares[reach] = 1.0
    for step in np.abs(moved):
        shares = (np.roll(shares, step) + np.roll(shares, -step)) / 2  # never wraps round: reach bounds the total
    totals = np.abs(np.arange(-reach, reach + 1))
    return min(1.0, float(shares[totals >= total].sum()))


def _drawn(moved: npt.NDArray[np.float64], bound: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    at_once = max(1, CELLS_AT_ONCE // len(moved))
    as_far = 1
    for begin in range(0, DRAWS, at_once):
        num = min(at_once, DRAWS - begin)
        signs = np.unpackbits(rng.integers(0, 256, (num, -(-len(moved) // 8)), np.uint8), axis=1)[:, : len(moved)]
        totals = signs.astype(np.float64) @ (2 * moved) - moved.sum()
        as_far += int(np.count_nonzero(np.abs(totals) >= bound))
    return as_far / (DRAWS + 1)


def rank_test(candidate: npt.NDArray[np.float64], baseline: npt.NDArray[np.float64]) -> float:
    """The two-sided p-value of two samples that are not paired (Mann and Whitney 1947)."""
    from scipy.stats import mannwhitneyu

    if len(np.unique(np.concatenate([candidate, baseline]))) == 1:
        return 1.0
    return float(mannwhitneyu(candidate, baseline, alternative="two-sided").pvalue)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected so that, if no task differs, the chance that any falls below a level is at most that level
    (Holm 1979).
    """
    corrected: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: (p_values[name], name))):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}
