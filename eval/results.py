"""The score of a task: one number for each item, their weighted mean, and how sure it is.

Whatever the axis, an item has a score and a weight, so that two models are compared in one way: bits per byte have a
document as item and its bytes as weight, a rate of toxic continuations has 0 or 1 for each prompt.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from eval.suites import TaskDefinition


@dataclass(frozen=True, kw_only=True)
class ItemResult:
    """One item of a task.

    cluster: items of one cluster may be dependent. prompt_hash: of what the model was asked; items of two evaluations
    are paired by `item` and must agree in it. group: for the worst-group score. gold and predicted: indices of
    choices, absent where a task has none. evidence: what a person looks at, as a continuation; short.
    """

    item: int
    cluster: str
    prompt_hash: str
    score: float
    weight: float = 1.0
    group: str = ""
    gold: int | None = None
    predicted: int | None = None
    log_likelihoods: tuple[float, ...] = ()
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task of a suite after it was run. details: more facts about it, the same every time. measured: scores are
    times or sizes of memory, which are not the same every time; `details` then holds measurements too.
    """

    suite: str
    axis: str
    definition: TaskDefinition
    items: tuple[ItemResult, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    measured: bool = False

    @cached_property
    def value(self) -> float:
        """The mean of the items' scores by weight."""
        return math.fsum(item.score * item.weight for item in self.items) / math.fsum(
            item.weight for item in self.items
        )

    @cached_property
    def standard_error(self) -> float | None:
        """Over clusters of items, absent if there are fewer than two."""
        return clustered_standard_error(
            [item.score for item in self.items],
            [item.cluster for item in self.items],
            [item.weight for item in self.items],
        )

    def facts(self) -> dict[str, Any]:
        """What the artifact tells of the task."""
        definition = self.definition
        return {
            "suite": self.suite,
            "axis": self.axis,
            "metric": definition.metric,
            "higher_is_better": definition.higher_is_better,
            "value": self.value,
            "standard_error": self.standard_error,
            "num_items": len(self.items),
            "num_clusters": len({item.cluster for item in self.items}),
            "chance": definition.chance,
            "shots": definition.shots,
            "version": definition.version,
            **self.details,
        }


@dataclass(frozen=True, kw_only=True)
class Results:
    """Scores of all tasks that could be run, and why the others could not."""

    tasks: tuple[TaskResult, ...]
    skipped: Mapping[str, str]


class Skipped(Exception):  # noqa: N818 - it tells of no fault
    """A task that has no meaning for this model or text; the message says why."""


def clustered_standard_error(
    scores: Sequence[float], clusters: Sequence[str], weights: Sequence[float] | None = None
) -> float | None:
    """Standard error of the weighted mean of `scores` when items of one cluster may be dependent: of a ratio of
    cluster totals, linearised (Liang and Zeger 1986; with the factor G / (G - 1)).

    With a cluster for each item and equal weights it is the usual one, sd / sqrt(n). None for fewer than two clusters.
    """
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    if len(names) < 2:
        return None
    values = np.asarray(scores, np.float64)
    shares = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    mean = float(values @ shares) / float(shares.sum())
    sums = np.bincount(index, weights=shares * (values - mean), minlength=len(names))
    return math.sqrt(len(names) / (len(names) - 1) * float(sums @ sums)) / float(shares.sum())
