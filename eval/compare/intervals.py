"""The 95 % interval of a score: what the choice of items leaves open."""

import math
from collections.abc import Sequence

from eval.compare.clusters import Clustered, clustered
from eval.compare.resampling import bootstrap_interval

Z = 1.959963984540054  # of 95 %, two-sided


def interval(
    scores: Sequence[float], clusters: Sequence[str], weights: Sequence[float] | None = None
) -> tuple[float, float] | None:
    """Low and high end of the 95 % interval of the weighted mean of `scores`; None for fewer than two clusters.

    Scores of 0 and 1 that weigh the same: Wilson's interval with the effective number of items, which is never of
    width 0. Any others: the percentile bootstrap over clusters.
    """
    sums = clustered(scores, clusters, weights)
    if sums.num_clusters < 2:
        return None
    if is_share(scores, weights):
        return _wilson(sums, len(scores))
    return bootstrap_interval(sums)


def is_share(scores: Sequence[float], weights: Sequence[float] | None = None) -> bool:
    """Whether the mean of `scores` is the share of items that are right."""
    return all(score in (0, 1) for score in scores) and len(set(weights or (1.0,))) == 1


def _wilson(sums: Clustered, num_items: int) -> tuple[float, float]:
    """Wilson's score interval on the number of independent items that would be as uncertain, fewer where few clusters
    tell how uncertain that is (Korn and Graubard 1998; compared with others by Franco et al. 2019). Where all items
    agree, every cluster counts as one item.
    """
    from scipy.special import stdtrit

    share, error = sums.value, sums.standard_error
    assert error is not None
    if 0 < share < 1:
        freedom = float(stdtrit(num_items - 1, 0.975) / stdtrit(sums.num_clusters - 1, 0.975)) ** 2
        independent = share * (1 - share) / error**2 if error else num_items  # 0: each cluster has the same share right
        effective = min(num_items, independent * freedom)
    else:
        effective = sums.num_clusters
    centre = (share + Z**2 / (2 * effective)) / (1 + Z**2 / effective)
    half = Z / (1 + Z**2 / effective) * math.sqrt(share * (1 - share) / effective + Z**2 / (4 * effective**2))
    return (0.0 if share == 0 else max(0.0, centre - half)), (1.0 if share == 1 else min(1.0, centre + half))
