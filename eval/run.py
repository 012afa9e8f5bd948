"""All tasks of some suites on one model."""

import functools
from collections.abc import Callable, Sequence

from eval.results import Results, Skipped, TaskResult
from eval.sources import SOURCES
from eval.subject import Subject
from eval.suites import Suite

TaskProgress = Callable[[str, int, int], None]


def run_suites(subject: Subject, suites: Sequence[Suite], progress: TaskProgress | None = None) -> Results:
    """Run every task of `suites`, one after another. `progress` is called with (task, done, total).

    Raises InputError for a task that does not exist or cannot be read without a network.
    """
    found: list[TaskResult] = []
    skipped: dict[str, str] = {}
    for suite in suites:
        for task in suite.tasks:
            try:
                watch = functools.partial(progress, task.name) if progress else None
                found.append(SOURCES[task.source].run(suite, task, subject, watch))
            except Skipped as reason:
                skipped[task.name] = str(reason)
    return Results(tasks=tuple(found), skipped=skipped)
