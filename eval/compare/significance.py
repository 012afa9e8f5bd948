"""Whether a difference could be chance, and what may be said after many such questions."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

DRAWS = 19_999  # at least: the smallest p-value is 1 / 20,000
EXACT_CLUSTERS = 14  # of which every pattern of signs is tried: 16,384
CELLS_AT_ONCE = 2_000_000
MOST_COUNTED = 100_000_000  # additions for an exact distribution of whole numbers: a second
TIE = 1e-9  # of the sum of magnitudes: sums that differ by rounding alone are the same

MCNEMAR = "exact McNemar test"
EXACT = "exact sign test of cluster sums"
DRAWN = "sign test of cluster sums, of which patterns were drawn"


def draws_for(level: float, num_tasks: int) -> int:
    """So many that the smallest p-value is half of what `level` leaves to each task, or less."""
    return max(DRAWS, math.ceil(2 * num_tasks / level) - 1)


def sign_test(sums: npt.NDArray[np.float64], *, draws: int = DRAWS, seed: int = 0) -> tuple[float, str]:
    """The two-sided p-value of differences summed by cluster, float64[num_clusters], and the name of the test.

    If two models are equal, each cluster's sum is as likely as its negative, whatever the items of a cluster have in
    common. The p-value is the share of all patterns of signs whose total is at least as far from 0 as the one observed
    (Fisher's randomisation test for pairs): of 0/1 scores with an item in each cluster it is McNemar's exact test.
    Whole numbers are counted exactly, by convolution; of others, and of very many, all patterns are tried or, where
    they are too many, `draws` of them drawn by `seed`, the observed one counted among them.
    """
    moved = sums[sums != 0]
    if len(moved) == 0:
        return 1.0, EXACT
    if np.all(np.abs(moved) == 1):
        return _mcnemar(moved), MCNEMAR
    total = abs(float(moved.sum()))
    if np.array_equal(moved, np.round(moved)) and np.abs(moved).sum() * len(moved) <= MOST_COUNTED:
        return _counted(moved.astype(np.int64), round(total)), EXACT
    bound = total - TIE * float(np.abs(moved).sum())
    if len(moved) <= EXACT_CLUSTERS:
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * len(moved))).reshape(len(moved), -1)
        return float(np.mean(np.abs(moved @ signs) >= bound)), EXACT
    return _drawn(moved, bound, draws, seed), DRAWN


def _mcnemar(moved: npt.NDArray[np.float64]) -> float:
    """Of items that moved by 1 either way: twice the binomial tail."""
    from scipy.special import bdtr

    fewer = min(int(np.count_nonzero(moved > 0)), int(np.count_nonzero(moved < 0)))
    return min(1.0, 2 * float(bdtr(fewer, len(moved), 0.5)))


def _counted(moved: npt.NDArray[np.int64], total: int) -> float:
    """The distribution of the total of whole numbers with random signs, exactly."""
    reach = int(np.abs(moved).sum())
    shares = np.zeros(2 * reach + 1)
    shares[reach] = 1.0
    for step in np.abs(moved):
        shares = (np.roll(shares, step) + np.roll(shares, -step)) / 2  # never wraps round: reach bounds the total
    totals = np.abs(np.arange(-reach, reach + 1))
    return min(1.0, float(shares[totals >= total].sum()))


def _drawn(moved: npt.NDArray[np.float64], bound: float, draws: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    at_once = max(1, CELLS_AT_ONCE // len(moved))
    as_far = 1
    for begin in range(0, draws, at_once):
        num = min(at_once, draws - begin)
        signs = np.unpackbits(rng.integers(0, 256, (num, -(-len(moved) // 8)), np.uint8), axis=1)[:, : len(moved)]
        totals = signs.astype(np.float64) @ (2 * moved) - moved.sum()
        as_far += int(np.count_nonzero(np.abs(totals) >= bound))
    return as_far / (draws + 1)


def least_of_signs(num_clusters: int) -> float:
    """The smallest p-value that `sign_test` can give: all clusters moved one way."""
    return float(2.0 ** (1 - num_clusters))


def least_of_ranks(num: int, num_others: int) -> float:
    """The smallest p-value that the exact `rank_test` can give: every score of one sample above all of the other."""
    return 2 / math.comb(num + num_others, num)


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
