"""The cluster bootstrap: clusters drawn anew with replacement (Efron and Tibshirani 1993, section 13.3)."""

import math

import numpy as np
import numpy.typing as npt

from eval.compare.clusters import Clustered

DRAWS = 2000
CELLS_AT_ONCE = 2_000_000  # so that memory stays small where there are many clusters


def bootstrap_interval(scores: Clustered, *, draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """The percentile interval, 95 %, of a weighted mean, wider for few clusters. Equal to the value where there is one
    cluster.
    """
    rng = np.random.default_rng(seed)
    values: list[npt.NDArray[np.float64]] = []
    at_once = max(1, CELLS_AT_ONCE // scores.num_clusters)
    for begin in range(0, draws, at_once):
        picked = rng.integers(0, scores.num_clusters, (min(at_once, draws - begin), scores.num_clusters))
        values.append(scores.totals[picked].sum(1) / scores.weights[picked].sum(1))
    low, high = np.percentile(np.concatenate(values), percentiles(scores.num_clusters))
    return float(low), float(high)


def percentiles(size: int) -> tuple[float, float]:
    """Those of the resampled values that bound a 95 % interval from a sample of `size`: further out than 2.5 and 97.5,
    since a small sample varies less than what it was drawn from and its own spread is uncertain (the expanded
    percentile interval, Hesterberg 2015).
    """
    from scipy.special import ndtr, stdtrit

    if size < 2:
        return 0.0, 100.0
    tail = 100 * float(ndtr(-math.sqrt(size / (size - 1)) * stdtrit(size - 1, 0.975)))
    return tail, 100 - tail
