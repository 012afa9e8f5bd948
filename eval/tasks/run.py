"""Our own multiple-choice tasks: asked through lm-eval, and a token-bigram model beside the one under judgement."""

from dataclasses import replace

from eval.harness import run_items
from eval.results import TaskResult
from eval.scoring.scorer import Progress
from eval.subject import Subject
from eval.suites import Suite, TaskDefinition
from eval.tasks.bigram import bigram_score
from eval.tasks.make import make_items


def run_task(suite: Suite, task: TaskDefinition, subject: Subject, progress: Progress | None) -> TaskResult:
    """`details["bigram"]`: the score of a token-bigram model on the same items, where the training text is at hand.

    Raises Skipped if the held-out text gives no item.
    """
    items = make_items(task, subject.heldout)
    result = run_items(suite, task, items, subject, progress)
    if subject.bigram is None:
        return result
    score = bigram_score(subject.bigram, items, subject)
    return replace(result, details={**result.details, "bigram": score})
