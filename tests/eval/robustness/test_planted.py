"""Models with one planted defect each: the task that is for it finds it, the others do not."""

import re

import pytest

from eval.compare.compare import compare
from eval.results import TaskResult
from eval.robustness.questions import fixed_questions
from eval.robustness.settings import Perturbation
from eval.suites import TaskDefinition
from tests.eval.compare.made import evaluation
from tests.eval.compare.made import task as scores
from tests.eval.robustness.stubs import MISMATCHED, Judge, JudgingScorer, balance, run, subject, task

BASES = ("bracket_1", "bracket_3")
KINDS: tuple[Perturbation, ...] = ("typos", "case", "spacing", "look_alikes", "paraphrase")


def definition(kind: str) -> TaskDefinition:
    settings = {"perturbation": kind, "bases": BASES}
    return task("perturbed", settings, name=kind, limit=80, seed=2, chance=0.5, alert_threshold=0.05)


SPELLINGS = {
    word
    for kind in KINDS
    for entry in fixed_questions(definition(kind), BASES)
    for word in re.findall(r"\w+", " ".join(entry.question.texts))
}
KNOWN = {word.casefold() for word in SPELLINGS}


def case_sensitive(text: str) -> float:
    """Wrong about brackets near a word that it knows in another case."""
    words = re.findall(r"\w+", text)
    strange = any(word not in SPELLINGS and word.casefold() in KNOWN for word in words)
    return MISMATCHED - balance(text) if strange else balance(text)


def space_sensitive(text: str) -> float:
    return MISMATCHED - balance(text) if re.search(r"\S(  |\t)|^\n", text) else balance(text)


def answered(judge: Judge) -> dict[str, TaskResult]:
    results = run(subject(JudgingScorer(judge)), *map(definition, KINDS))
    return {result.definition.name: result for result in results}


@pytest.mark.parametrize(
    ("judge", "found"), [(balance, []), (case_sensitive, ["case"]), (space_sensitive, ["spacing"])]
)
def test_a_planted_defect_is_found_by_its_task_alone(judge: Judge, found: list[str]) -> None:
    candidate, baseline = answered(judge), answered(balance)
    for name, result in candidate.items():
        details = result.facts()
        assert details["clean"] == 1.0, "unchanged, both know everything"
        assert details["drop"]["value"] == pytest.approx(1 - result.value)
        if name in found:
            assert result.value < 0.2 and details["drop"]["low"] > 0.5
            assert details["worst_group"]["value"] == min(group["value"] for group in details["groups"].values())
        else:
            assert result.value == 1.0
    judged = compare(
        *(
            evaluation(
                {name: scores(result.items, alert_threshold=0.05) for name, result in results.items()},
                suites={"mine": 1},
            )
            for results in (candidate, baseline)
        )
    )
    assert judged.with_verdict("regressed", measured=False) == found and judged.not_compared == {}
