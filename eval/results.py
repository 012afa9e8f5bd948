"""The score of a task: one number for each item, their weighted mean, and how sure it is.

Whatever the axis, an item has a score and a weight, so that two models are compared in one way: bits per byte have a
document as item and its bytes as weight, a rate of toxic continuations has 0 or 1 for each prompt.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eval.compare.clusters import Clustered, clustered
from eval.compare.intervals import interval
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
    def _sums(self) -> Clustered:
        return clustered(*self._columns)

    @property
    def _columns(self) -> tuple[list[float], list[str], list[float]]:
        items = self.items
        return [item.score for item in items], [item.cluster for item in items], [item.weight for item in items]

    @property
    def value(self) -> float:
        """The mean of the items' scores by weight."""
        return self._sums.value

    @property
    def standard_error(self) -> float | None:
        """Over clusters of items, absent if there are fewer than two."""
        return self._sums.standard_error

    def facts(self) -> dict[str, Any]:
        """What the artifact tells of the task; `low` and `high` are the ends of its 95 % interval."""
        definition = self.definition
        low, high = interval(*self._columns) or (None, None)
        return {
            "suite": self.suite,
            "axis": self.axis,
            "description": definition.description,
            "moves_at": definition.moves_at,
            "metric": definition.metric,
            "source": definition.source,
            "higher_is_better": definition.higher_is_better,
            "alert_threshold": definition.alert_threshold,
            "value": self.value,
            "standard_error": self.standard_error,
            "low": low,
            "high": high,
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


def hashed(*asked: Any) -> str:
    """sha256, in hex, of what an item asked: the prompt and what else its score depends on."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


class Skipped(Exception):  # noqa: N818 - it tells of no fault
    """A task that has no meaning for this model or text; the message says why."""
