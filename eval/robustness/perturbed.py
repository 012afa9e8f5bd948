"""Other tasks' items, each changed by one perturbation: the score is that of the changed ones."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eval.results import ItemResult, Skipped, TaskResult
from eval.robustness.drop import with_drop
from eval.robustness.perturbations import perturb
from eval.robustness.questions import (
    Numbered,
    Question,
    fixed_questions,
    is_right,
    predicted,
    read_questions,
    score_questions,
)
from eval.robustness.settings import PerturbedSettings
from eval.suites import Suite, TaskDefinition

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress
    from eval.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A question before and after; `variant`: what was done to it."""

    item: int
    clean: Question
    changed: Question
    variant: str


def run_task(suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None") -> TaskResult:
    """Ask both forms of each question. Groups are the variants. Raises Skipped if nothing could be changed."""
    found = list(pairs(task, read_questions(task, task.chosen(PerturbedSettings).bases, subject)))
    if not found:
        raise Skipped(f"no item of {', '.join(task.chosen(PerturbedSettings).bases)} has a place for it")
    answers = score_questions(
        [question for pair in found for question in (pair.clean, pair.changed)], subject, progress
    )
    clean_scores = [is_right(pair.clean, answer) for pair, answer in zip(found, answers[::2], strict=True)]
    items = [
        ItemResult(
            item=pair.item,
            cluster=pair.changed.cluster,
            prompt_hash=pair.changed.hash(),
            score=is_right(pair.changed, answer),
            group=pair.variant,
            gold=pair.changed.gold,
            predicted=predicted(answer),
            log_likelihoods=answer,
            evidence=pair.changed.texts[pair.changed.gold],
        )
        for pair, answer in zip(found, answers[1::2], strict=True)
    ]
    return with_drop(suite, task, items, clean_scores)


def pairs(task: TaskDefinition, questions: Iterable[Numbered]) -> Iterator[Pair]:
    """Each question that can be changed: a function of the question, the seed and its place."""
    settings = task.chosen(PerturbedSettings)
    for numbered in questions:
        rng = random.Random(f"{settings.perturbation}/{task.seed}/{numbered.item}")
        changed = perturb(numbered.question, settings.perturbation, rng, settings.strength)
        if changed is not None:
            yield Pair(item=numbered.item, clean=numbered.question, changed=changed[0], variant=changed[1])


def fixed_texts(task: TaskDefinition) -> Iterator[str]:
    """Both forms of the items of template bases, with their right answers."""
    for pair in pairs(task, fixed_questions(task, task.chosen(PerturbedSettings).bases)):
        for question in (pair.clean, pair.changed):
            yield question.texts[question.gold]
