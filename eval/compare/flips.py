"""The items that moved most: what a person looks at after a verdict."""

from collections.abc import Iterator, Mapping
from typing import Any

from eval.compare.compare import TaskComparison
from eval.compare.pairing import Pair


def flips(tasks: Mapping[str, TaskComparison], most: int) -> Iterator[dict[str, Any]]:
    """At most `most` items in each direction of each task, the largest change of score times weight first; where
    changes are equal, as of 0/1 scores, the one whose likelihoods moved most.
    """
    for name, found in tasks.items():
        sign = 1 if found.task.higher_is_better else -1
        for direction, wanted in (("worsened", -1), ("improved", 1)):
            moved = [pair for pair in found.pairs if sign * wanted * pair.change > 0]
            for pair in sorted(moved, key=lambda pair: (-abs(pair.change), -_moved(pair), pair.baseline.item))[:most]:
                yield _row(name, found.task.suite, direction, pair)


def _moved(pair: Pair) -> float:
    """How far the likelihood of the right choice moved against the best other one, in nats."""
    return abs(_margin(pair.candidate.log_likelihoods, pair) - _margin(pair.baseline.log_likelihoods, pair))


def _margin(log_likelihoods: tuple[float, ...], pair: Pair) -> float:
    gold = pair.baseline.gold
    if gold is None or not 0 <= gold < len(log_likelihoods) or len(log_likelihoods) < 2:
        return 0.0
    return log_likelihoods[gold] - max((*log_likelihoods[:gold], *log_likelihoods[gold + 1 :]))


def _row(task: str, suite: str, direction: str, pair: Pair) -> dict[str, Any]:
    ours, theirs = pair.candidate, pair.baseline
    return {
        "task": task,
        "suite": suite,
        "item": theirs.item,
        "cluster": theirs.cluster,
        "group": theirs.group,
        "direction": direction,
        "candidate_score": ours.score,
        "baseline_score": theirs.score,
        "weight": theirs.weight,
        "gold": theirs.gold,
        "candidate_predicted": ours.predicted,
        "baseline_predicted": theirs.predicted,
        "candidate_evidence": ours.evidence,
        "baseline_evidence": theirs.evidence,
    }
