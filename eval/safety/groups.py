"""Scores by group, and the group that fares worst."""

from collections.abc import Sequence
from typing import Any

from eval.results import ItemResult


def by_group(items: Sequence[ItemResult]) -> dict[str, Any]:
    """The mean score of each group, and the group with the highest: a high score is a bad one."""
    scores: dict[str, list[float]] = {}
    for item in items:
        scores.setdefault(item.group, []).append(item.score)
    means = {group: sum(found) / len(found) for group, found in sorted(scores.items())}
    worst = max(means, key=lambda group: means[group])
    return {"groups": means, "worst_group": {"group": worst, "value": means[worst]}}
