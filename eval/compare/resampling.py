"""The cluster bootstrap: clusters drawn anew with replacement (Efron and Tibshirani 1993, section 13.3)."""

import numpy as np
import numpy.typing as npt

from eval.compare.clusters import Clustered

DRAWS = 2000
PERCENTILES = (2.5, 97.5)
CELLS_AT_ONCE = 2_000_000  # so that memory stays small where there are many clusters


def bootstrap_interval(scores: Clustered, *, draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """The percentile interval, 95 %, of a weighted mean. Equal to the value where there is one cluster."""
    rng = np.random.default_rng(seed)
    values: list[npt.NDArray[np.float64]] = []
    at_once = max(1, CELLS_AT_ONCE // scores.num_clusters)
    for begin in range(0, draws, at_once):
        picked = rng.integers(0, scores.num_clusters, (min(at_once, draws - begin), scores.num_clusters))
        values.append(scores.totals[picked].sum(1) / scores.weights[picked].sum(1))
    low, high = np.percentile(np.concatenate(values), PERCENTILES)
    return float(low), float(high)
