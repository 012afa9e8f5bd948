"""One task of a candidate against the same of a baseline: the difference, its interval, and whether it could be
chance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from eval.compare.clusters import clustered, design_effect
from eval.compare.evaluation import TaskScores
from eval.compare.intervals import is_share
from eval.compare.pairing import Paired
from eval.compare.power import minimal_detectable_difference
from eval.compare.resampling import DRAWS, bootstrap_interval, percentiles
from eval.compare.significance import least_of_ranks, least_of_signs, rank_test, sign_test

Verdict = Literal["regressed", "worse", "improved", "no_difference"]
FACT = "a fact, not a sample: any difference is certain"
POWER_ALONE = ("standard_error", "freedom", "least_p")
MEASURED_METHOD = "Mann-Whitney test of the rounds, difference of medians"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far a candidate lies from a baseline, in the metric's units; `difference` is candidate less baseline, `low`
    and `high` its 95 % interval (absent with one cluster). For the minimal detectable difference: `standard_error`,
    its degrees of `freedom`, and `least_p`, the smallest p-value that the test could have given.
    """

    candidate: float
    baseline: float
    difference: float
    low: float | None
    high: float | None
    standard_error: float | None
    freedom: int
    least_p: float
    p_value: float
    method: str
    num_items: int
    num_unpaired: int
    num_clusters: int
    num_worsened: int
    num_improved: int

    def facts(self) -> dict[str, Any]:
        """All but what the minimal detectable difference takes."""
        return {name: value for name, value in vars(self).items() if name not in POWER_ALONE}


def paired_difference(task: TaskScores, paired: Paired, draws: int) -> Difference:
    """Of scores that are the same every time. draws: of patterns of signs, where they are too many to try."""
    pairs = paired.pairs
    clusters = [pair.baseline.cluster for pair in pairs]
    weights = [pair.baseline.weight for pair in pairs]
    ours, theirs = ([getattr(pair, side).score for pair in pairs] for side in ("candidate", "baseline"))
    changes = [a - b for a, b in zip(ours, theirs, strict=True)]
    sums = clustered(changes, clusters, weights)
    p_value, method = sign_test(sums.totals, draws=draws)
    if task.exact:
        p_value, method = float(not changes[0]), FACT
    low, high, error = interval_of_difference(ours, theirs, clusters, weights)
    better = [change > 0 if task.higher_is_better else change < 0 for change in changes if change]
    return Difference(
        candidate=clustered(ours, clusters, weights).value,
        baseline=clustered(theirs, clusters, weights).value,
        difference=sums.value,
        low=low,
        high=high,
        standard_error=error,
        freedom=sums.num_clusters - 1,
        least_p=least_of_signs(sums.num_clusters),
        p_value=p_value,
        method=method,
        num_items=len(pairs),
        num_unpaired=paired.num_unpaired,
        num_clusters=sums.num_clusters,
        num_worsened=len(better) - sum(better),
        num_improved=sum(better),
    )


def interval_of_difference(
    ours: Sequence[float], theirs: Sequence[float], clusters: Sequence[str], weights: Sequence[float]
) -> tuple[float | None, float | None, float | None]:
    """The 95 % interval of the mean of `ours` less `theirs`, item by item, and its standard error over clusters; all
    are absent with one cluster.
    """
    changes = [a - b for a, b in zip(ours, theirs, strict=True)]
    if is_share(ours, weights) and is_share(theirs, weights):
        return interval_of_change(changes, clusters)
    sums = clustered(changes, clusters, weights)
    low, high = bootstrap_interval(sums) if sums.num_clusters > 1 else (None, None)
    return low, high, sums.standard_error


def interval_of_change(
    changes: Sequence[float], clusters: Sequence[str]
) -> tuple[float | None, float | None, float | None]:
    """The interval of a difference of two shares on the same items, and its standard error: Wald's after one item more
    has changed each way (Bonett and Price 2012), so that it has a width even where no item changed; over clusters,
    the two items being clusters of their own that weigh as many items as count as an independent one, and by
    Student's t.
    """
    from scipy.special import stdtrit

    if len(set(clusters)) < 2:
        return None, None, None
    one = design_effect(changes, clusters)
    weights = [1.0] * len(changes) + [one, one]
    sums = clustered([*changes, 1.0, -1.0], [*clusters, "\0better", "\0worse"], weights)
    error = sums.standard_error
    assert error is not None
    half = float(stdtrit(sums.num_clusters - 3, 0.975)) * error
    return max(-1.0, sums.value - half), min(1.0, sums.value + half), error


def measured_difference(task: TaskScores, baseline: TaskScores) -> Difference:
    """Of times and sizes of memory: the rounds of two runs are two samples, not pairs. The interval and the test hold
    the noise within the runs only; what changes between runs is for the alert threshold to cover.
    """
    ours, theirs = (np.array([item.score for item in scores.items]) for scores in (task, baseline))
    rng = np.random.default_rng(0)
    moved = _medians(ours, rng) - _medians(theirs, rng)
    low, high = np.percentile(moved, percentiles(min(len(ours), len(theirs))))
    centre = float(np.median(theirs))
    better = int(np.count_nonzero(ours > centre if task.higher_is_better else ours < centre))
    return Difference(
        candidate=float(np.median(ours)),
        baseline=centre,
        difference=float(np.median(ours)) - centre,
        low=float(low),
        high=float(high),
        standard_error=math.sqrt(float(moved.var())),
        freedom=len(ours) + len(theirs) - 2,
        least_p=least_of_ranks(len(ours), len(theirs)),
        p_value=rank_test(ours, theirs),
        method=MEASURED_METHOD,
        num_items=len(ours),
        num_unpaired=0,
        num_clusters=len(ours),
        num_worsened=int(np.count_nonzero(ours != centre)) - better,
        num_improved=better,
    )


def _medians(scores: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    found = np.median(scores[rng.integers(0, len(scores), (DRAWS, len(scores)))], axis=1)
    return np.asarray(found, np.float64)


def judge(task: TaskScores, found: Difference, p_corrected: float, level: float) -> Verdict:
    """A regression is significant after correction and no smaller than the task's alert threshold."""
    if p_corrected > level or found.difference == 0:
        return "no_difference"
    if (found.difference > 0) == task.higher_is_better:
        return "improved"
    return "regressed" if abs(found.difference) >= task.alert_threshold else "worse"


def detectable(found: Difference, level: float) -> float | None:
    """The minimal detectable difference of a task whose p-value must not exceed `level`; None where no difference could
    be shown, since no pattern of so few clusters is that unlikely.
    """
    if found.standard_error is None or found.least_p > level:
        return None
    return minimal_detectable_difference(found.standard_error, found.freedom, level)
