"""Items of two evaluations in pairs, or the sentence that says why a task cannot be compared."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eval.compare.evaluation import Evaluation
from eval.results import ItemResult


class NotComparable(Exception):  # noqa: N818 - it tells of no fault
    """Scores of two evaluations that do not mean the same; the message is a sentence that says why."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The same item in both."""

    candidate: ItemResult
    baseline: ItemResult

    @property
    def change(self) -> float:
        """Candidate less baseline, times the item's weight."""
        return (self.candidate.score - self.baseline.score) * self.baseline.weight


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The pairs of a task by item, and how many items only one of the two holds: one was asked more of them."""

    pairs: tuple[Pair, ...]
    num_unpaired: int


def require_same_meaning(candidate: Evaluation, baseline: Evaluation, name: str) -> None:
    """Raise NotComparable unless a task that both hold was defined and asked in one way."""
    ours, theirs = candidate.tasks[name], baseline.tasks[name]
    for what, a, b in (
        ("definition has version", ours.version, theirs.version),
        ("metric is", ours.metric, theirs.metric),
        ("number of solved examples is", ours.shots, theirs.shots),
        ("better scores are", *("higher" if task.higher_is_better else "lower" for task in (ours, theirs))),
    ):
        if a != b:
            raise NotComparable(f"its {what} {a} in the candidate and {b} in the baseline")
    if ours.software != theirs.software:
        raise NotComparable(f"{ours.software} asked the candidate, and {theirs.software} the baseline")
    if ours.per_token and candidate.tokenizer != baseline.tokenizer:
        raise NotComparable("its score depends on the number of tokens, and the two models have different tokenizers")
    for which, task in (("candidate", ours), ("baseline", theirs)):
        unscored = sum(not math.isfinite(item.score) for item in task.items)
        if unscored:
            raise NotComparable(f"{unscored} of {len(task.items)} items of the {which} have no finite score")
    if ours.measured and candidate.machine != baseline.machine:
        raise NotComparable(
            f"the candidate was measured on {candidate.machine or 'an unknown machine'}, "
            f"the baseline on {baseline.machine or 'an unknown machine'}"
        )
    if ours.measured and {item.prompt_hash for item in ours.items} != {item.prompt_hash for item in theirs.items}:
        raise NotComparable("the two were measured on different devices or with other work")


def pair_items(candidate: Evaluation, baseline: Evaluation, name: str) -> Paired:
    """The items that both evaluations hold of a task. Raises NotComparable if there are none, or if one of them asks
    or weighs something else.
    """
    ours, theirs = (_by_identity(scores.tasks[name].items) for scores in (candidate, baseline))
    pairs = tuple(Pair(candidate=ours[item], baseline=theirs[item]) for item in sorted(ours.keys() & theirs.keys()))
    if not pairs:
        raise NotComparable("the two have no item in common")
    asked = sum(pair.candidate.prompt_hash != pair.baseline.prompt_hash for pair in pairs)
    if asked:
        why = ", since their held-out text is of different corpora" if candidate.corpus != baseline.corpus else ""
        raise NotComparable(f"{asked} of {len(pairs)} items ask something else in the two{why}")
    weighed = sum(not math.isclose(pair.candidate.weight, pair.baseline.weight) for pair in pairs)
    if weighed:
        raise NotComparable(f"{weighed} of {len(pairs)} items have different weights in the two")
    return Paired(pairs=pairs, num_unpaired=len(ours) + len(theirs) - 2 * len(pairs))


def _by_identity(items: Sequence[ItemResult]) -> dict[tuple[int, str], ItemResult]:
    """By number and cluster: the tasks of one of lm-eval's groups number their items each from 0."""
    found = {(item.item, item.cluster): item for item in items}
    assert len(found) == len(items), "two items of a task have the same number and cluster"
    return found
