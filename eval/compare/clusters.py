"""Scores summed by cluster: items of one template or document are not independent, their clusters are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Clustered:
    """`totals`: float64[num_clusters], score times weight summed over a cluster's items; `weights`: float64, the same
    of the weights alone. Clusters are in the order of their names.
    """

    totals: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]

    @property
    def num_clusters(self) -> int:
        return len(self.totals)

    @cached_property
    def value(self) -> float:
        """The weighted mean of the scores."""
        return math.fsum(self.totals) / math.fsum(self.weights)

    @cached_property
    def standard_error(self) -> float | None:
        """Of `value`, as of a ratio of cluster totals, linearised (Liang and Zeger 1986; with the factor G / (G - 1)).

        With a cluster for each item and equal weights it is the usual one, sd / sqrt(n). None for fewer than two
        clusters.
        """
        if self.num_clusters < 2:
            return None
        residuals = self.totals - self.value * self.weights
        factor = self.num_clusters / (self.num_clusters - 1)
        return math.sqrt(factor * float(residuals @ residuals)) / float(self.weights.sum())


def clustered(scores: Sequence[float], clusters: Sequence[str], weights: Sequence[float] | None = None) -> Clustered:
    """Sum `scores` by cluster; all weigh the same without `weights`."""
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    values = np.asarray(scores, np.float64)
    shares = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    return Clustered(
        totals=np.bincount(index, weights=shares * values, minlength=len(names)).astype(np.float64),
        weights=np.bincount(index, weights=shares, minlength=len(names)).astype(np.float64),
    )


def design_effect(scores: Sequence[float], clusters: Sequence[str]) -> float:
    """How many times the variance of the mean is what it would be if items were independent (Kish 1965, section 8.2):
    1 at least, and the items of a cluster at most, which is what is assumed of scores that are all the same.
    """
    most = len(scores) / len(set(clusters))
    alone = clustered(scores, [str(i) for i in range(len(scores))]).standard_error
    together = clustered(scores, clusters).standard_error
    return min(max((together / alone) ** 2, 1.0), most) if alone and together is not None else most
