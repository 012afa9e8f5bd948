"""How much worse changed questions are answered than the very same unchanged ones."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eval.compare.clusters import clustered
from eval.results import ItemResult, TaskResult
from eval.suites import Suite, TaskDefinition

NORMAL_95 = 1.959964


def with_drop(
    suite: Suite,
    task: TaskDefinition,
    items: Sequence[ItemResult],
    clean_scores: Sequence[float],
    details: Mapping[str, Any] | None = None,
) -> TaskResult:
    """`clean_scores[i]`: what the unchanged question of `items[i]` scored. The worst group is what loses most."""
    drops = [clean - item.score for clean, item in zip(clean_scores, items, strict=True)]
    groups = {
        group: [i for i, item in enumerate(items) if item.group == group]
        for group in sorted({item.group for item in items})
    }
    worst = max(groups, key=lambda group: _mean(drops[i] for i in groups[group]))
    return TaskResult(
        suite=suite.name,
        axis=suite.axis,
        definition=task,
        items=tuple(items),
        details={
            "clean": _mean(clean_scores),
            "drop": interval(_mean(drops), clustered(drops, [item.cluster for item in items]).standard_error),
            "worst_group": {"group": worst, "value": _mean(items[i].score for i in groups[worst])},
            "groups": {
                group: {
                    "value": _mean(items[i].score for i in places),
                    "clean": _mean(clean_scores[i] for i in places),
                    "num_items": len(places),
                }
                for group, places in groups.items()
            },
            **(details or {}),
        },
    )


def interval(value: float, standard_error: float | None) -> dict[str, float | None]:
    """A drop with its standard error over clusters and its 95 % interval by the normal approximation; absent for fewer
    than two clusters. Positive is worse.
    """
    if standard_error is None:
        return {"value": value, "low": None, "high": None, "standard_error": None}
    reach = NORMAL_95 * standard_error
    return {"value": value, "low": value - reach, "high": value + reach, "standard_error": standard_error}


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
