"""How much worse changed questions are answered than the very same unchanged ones."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eval.compare.task import interval_of_difference
from eval.results import ItemResult, TaskResult
from eval.suites import Suite, TaskDefinition


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
            "drop": _drop(items, clean_scores),
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


def _drop(items: Sequence[ItemResult], clean_scores: Sequence[float]) -> dict[str, float | None]:
    """What is lost, positive where the changed questions are answered worse, with the interval of a comparison."""
    scores, clusters = [item.score for item in items], [item.cluster for item in items]
    low, high, error = interval_of_difference(clean_scores, scores, clusters, [1.0] * len(items))
    return {"value": _mean(clean_scores) - _mean(scores), "low": low, "high": high, "standard_error": error}


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
