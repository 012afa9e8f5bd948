"""A search for a small change that makes a right answer wrong: greedy, over a bounded number of forms."""

import random
from typing import TYPE_CHECKING, get_args

from eval.results import ItemResult, TaskResult
from eval.robustness.drop import with_drop
from eval.robustness.perturbations import perturb
from eval.robustness.questions import Question, is_right, predicted, read_questions, score_questions
from eval.robustness.settings import Perturbation, WorstCaseSettings
from eval.suites import Suite, TaskDefinition

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress
    from eval.subject import Subject

ONE_PLACE = 1e-9  # a share that rounds to no place, of which there is always one
WHOLE_TEXT = ("case",)  # not small


def run_task(suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None") -> TaskResult:
    """An item scores 1 if it is answered right in every form that was tried. In each round the form that the model
    likes least (right choice over best other) is kept and changed again. Groups are the bases; `evidence` is the form
    that was answered wrong. `queries`: forms asked in all, the unchanged ones not counted.
    """
    settings = task.chosen(WorstCaseSettings)
    numbered = read_questions(task, settings.bases, subject)
    worst = {entry.item: entry.question for entry in numbered}
    answers = dict(zip(worst, score_questions(list(worst.values()), subject, progress), strict=True))
    clean_scores = [is_right(entry.question, answers[entry.item]) for entry in numbered]
    queries = 0
    for turn in range(settings.rounds):
        tried = [
            (item, form)
            for item, question in worst.items()
            if is_right(question, answers[item])
            for form in _forms(question, f"worst_case/{task.seed}/{item}/{turn}", settings.candidates)
        ]
        queries += len(tried)
        found = score_questions([form for _, form in tried], subject, progress)
        for (item, form), answer in zip(tried, found, strict=True):
            if _margin(form, answer) < _margin(worst[item], answers[item]):
                worst[item], answers[item] = form, answer
    items = [
        ItemResult(
            item=entry.item,
            cluster=entry.question.cluster,
            prompt_hash=entry.question.hash(settings.rounds, settings.candidates, task.seed),
            score=is_right(worst[entry.item], answers[entry.item]),
            group=entry.question.base,
            gold=entry.question.gold,
            predicted=predicted(answers[entry.item]),
            log_likelihoods=answers[entry.item],
            evidence=worst[entry.item].texts[predicted(answers[entry.item])],
        )
        for entry in numbered
    ]
    return with_drop(suite, task, items, clean_scores, {"queries": queries})


def _forms(question: Question, seed: str, number: int) -> list[Question]:
    """At most `number` distinct forms that one change gives."""
    rng = random.Random(seed)
    kinds = [kind for kind in get_args(Perturbation) if kind not in WHOLE_TEXT]
    forms = dict.fromkeys(
        changed[0] for _ in range(number) if (changed := perturb(question, rng.choice(kinds), rng, ONE_PLACE))
    )
    return list(forms)


def _margin(question: Question, log_likelihoods: tuple[float, ...]) -> float:
    others = [value for choice, value in enumerate(log_likelihoods) if choice != question.gold]
    return log_likelihoods[question.gold] - max(others)
