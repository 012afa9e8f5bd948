"""Questions as numbered lists whose number is to be named, in every order that turning the list gives: a model that has
understood names the same choice wherever it stands.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eval.results import ItemResult, TaskResult
from eval.robustness.drop import with_drop
from eval.robustness.questions import (
    Question,
    fixed_questions,
    is_right,
    predicted,
    read_questions,
    score_questions,
)
from eval.robustness.settings import BaseSettings
from eval.suites import Suite, TaskDefinition

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress
    from eval.subject import Subject

ORDERS = 100  # item numbers kept for the orders of one question


def run_task(suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None") -> TaskResult:
    """An item is a question in one order; groups are the places of the right choice. `consistent`: the share of
    questions that are answered alike in every order; `spread`: of scores between places. Clean is the question without
    a list, its choices compared as whole texts.
    """
    settings = task.chosen(BaseSettings)
    numbered = read_questions(task, settings.bases, subject)
    listed = [orders(entry.question) for entry in numbered]
    answers = score_questions(
        [question for entry, turned in zip(numbered, listed, strict=True) for question in (entry.question, *turned)],
        subject,
        progress,
    )
    items: list[ItemResult] = []
    clean_scores: list[float] = []
    consistent = 0
    place = 0
    for entry, turned in zip(numbered, listed, strict=True):
        clean, of_orders = answers[place], answers[place + 1 : place + 1 + len(turned)]
        place += 1 + len(turned)
        for turn, (question, answer) in enumerate(zip(turned, of_orders, strict=True)):
            items.append(
                ItemResult(
                    item=entry.item * ORDERS + turn,
                    cluster=question.cluster,
                    prompt_hash=question.hash(),
                    score=is_right(question, answer),
                    group=f"place {question.gold + 1}",
                    gold=question.gold,
                    predicted=predicted(answer),
                    log_likelihoods=answer,
                )
            )
            clean_scores.append(is_right(entry.question, clean))
        consistent += len({_chosen(answer, turn) for turn, answer in enumerate(of_orders)}) == 1
    result = with_drop(suite, task, items, clean_scores)
    values = [group["value"] for group in result.details["groups"].values()]
    more = {"consistent": consistent / len(numbered), "spread": max(values) - min(values)}
    return replace(result, details={**result.details, **more})


def fixed_texts(task: TaskDefinition) -> Iterator[str]:
    """The questions of template bases, as whole texts and as lists, with their right answers."""
    settings = task.chosen(BaseSettings)
    for entry in fixed_questions(task, settings.bases):
        for question in (entry.question, *orders(entry.question)):
            yield question.texts[question.gold]


def orders(question: Question) -> list[Question]:
    """The question as a list, turned by 0, 1, ... places; choice i stands at place i - turn."""
    num = len(question.choices)
    assert num <= ORDERS
    found = []
    for turn in range(num):
        turned = [question.choices[(place + turn) % num].strip() for place in range(num)]
        lines = "".join(f"{place}. {text}\n" for place, text in enumerate(turned, 1))
        before = f"{question.context}\n" if question.context else ""
        found.append(
            replace(
                question,
                context=f"{before}{lines}Which one is right? Number",
                choices=tuple(f" {place}" for place in range(1, num + 1)),
                gold=(question.gold - turn) % num,
            )
        )
    return found


def _chosen(answer: Sequence[float], turn: int) -> int:
    """Which choice it was before the list was turned."""
    return (predicted(answer) + turn) % len(answer)
