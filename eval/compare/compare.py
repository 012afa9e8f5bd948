"""Two evaluations task by task, with one error level for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eval.compare.evaluation import Evaluation, TaskScores
from eval.compare.pairing import NotComparable, Pair, pair_items, require_same_meaning
from eval.compare.significance import draws_for, holm
from eval.compare.task import Difference, Verdict, detectable, judge, measured_difference, paired_difference

LEVEL = 0.01


@dataclass(frozen=True, kw_only=True)
class TaskComparison:
    """A task that could be compared; `pairs` is empty where scores are measured."""

    task: TaskScores
    found: Difference
    p_corrected: float
    minimal_detectable_difference: float | None
    verdict: Verdict
    pairs: tuple[Pair, ...]

    def facts(self) -> dict[str, Any]:
        """What the artifact tells of it."""
        task = self.task
        return {
            "suite": task.suite,
            "axis": task.axis,
            "metric": task.metric,
            "higher_is_better": task.higher_is_better,
            "alert_threshold": task.alert_threshold,
            "verdict": self.verdict,
            **self.found.facts(),
            "p_corrected": self.p_corrected,
            "minimal_detectable_difference": self.minimal_detectable_difference,
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The tasks of two evaluations. not_compared, missing: task -> the sentence that says why. A missing task is one
    that the candidate was to be asked and has no score for, although the baseline has.
    """

    tasks: Mapping[str, TaskComparison]
    not_compared: Mapping[str, str]
    missing: Mapping[str, str]

    def with_verdict(self, verdict: Verdict, *, measured: bool) -> list[str]:
        """The tasks that came out so."""
        return [
            name for name, found in self.tasks.items() if found.verdict == verdict and found.task.measured == measured
        ]

    def verdict(self, *, measured: bool) -> Literal["regressed", "improved", "no_difference", "not_compared"]:
        """Of all tasks together: regressed if any is."""
        if not any(found.task.measured == measured for found in self.tasks.values()):
            return "not_compared"
        if self.with_verdict("regressed", measured=measured):
            return "regressed"
        return "improved" if self.with_verdict("improved", measured=measured) else "no_difference"


def compare(candidate: Evaluation, baseline: Evaluation, *, level: float = LEVEL) -> Comparison:
    """Compare every task that both hold. `level` bounds the chance that, if the models are equal, any task is said to
    differ, in either direction; tasks whose scores are measured have a level of their own.
    """
    draws = draws_for(level, len(candidate.tasks))
    found: dict[str, tuple[Difference, tuple[Pair, ...]]] = {}
    not_compared = {name: "the baseline was not asked it" for name in candidate.tasks if name not in baseline.tasks}
    for name, task in candidate.tasks.items():
        if name in not_compared:
            continue
        try:
            require_same_meaning(candidate, baseline, name)
            if task.measured:
                found[name] = measured_difference(task, baseline.tasks[name]), ()
            else:
                paired = pair_items(candidate, baseline, name)
                found[name] = paired_difference(task, paired, draws), paired.pairs
        except NotComparable as reason:
            not_compared[name] = str(reason)
    missing, left_out = _absent(candidate, baseline)
    return Comparison(
        tasks=_judged(candidate, found, level), not_compared={**not_compared, **left_out}, missing=missing
    )


def _judged(
    candidate: Evaluation, found: Mapping[str, tuple[Difference, tuple[Pair, ...]]], level: float
) -> dict[str, TaskComparison]:
    """Corrected for the number of tasks, those that are measured apart, in the order in which they stand."""
    judged: dict[str, TaskComparison] = {}
    for measured in (False, True):
        family = {name: entry for name, entry in found.items() if candidate.tasks[name].measured == measured}
        corrected = holm({name: difference.p_value for name, (difference, _) in family.items()})
        for name, (difference, pairs) in family.items():
            judged[name] = TaskComparison(
                task=candidate.tasks[name],
                found=difference,
                p_corrected=corrected[name],
                minimal_detectable_difference=detectable(difference, level / len(family)),
                verdict=judge(candidate.tasks[name], difference, corrected[name], level),
                pairs=pairs,
            )
    return {name: judged[name] for name in found}


def _absent(candidate: Evaluation, baseline: Evaluation) -> tuple[dict[str, str], dict[str, str]]:
    """(missing, not compared) of the tasks that only the baseline holds."""
    missing: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, task in baseline.tasks.items():
        if name in candidate.tasks:
            continue
        ours, theirs = candidate.suites.get(task.suite), baseline.suites.get(task.suite)
        if ours is None:
            left_out[name] = f"the candidate was not asked suite {task.suite}"
        elif name in candidate.skipped and task.measured and candidate.machine != baseline.machine:
            left_out[name] = f"it was left out on {candidate.machine}: {candidate.skipped[name]}"
        elif name in candidate.skipped:
            missing[name] = f"it was left out: {candidate.skipped[name]}"
        elif ours != theirs:
            left_out[name] = f"suite {task.suite} no longer holds it: version {ours}, the baseline's is {theirs}"
        else:
            missing[name] = f"suite {task.suite} was asked, and there is no score of it"
    return missing, left_out
