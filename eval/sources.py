"""Where a task's items come from: each source with its settings, its runner and the texts that training must not hold.

A runner is imported when it is needed: naming the sources costs no torch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from eval.results import TaskResult
    from eval.scoring.scorer import Progress
    from eval.subject import Subject
    from eval.suites import Suite, TaskDefinition

    Runner = Callable[[Suite, TaskDefinition, Subject, Progress | None], TaskResult]
    Texts = Callable[[TaskDefinition], Iterator[str]]


class Settings(BaseModel):
    """What a task may set beside what all tasks have, under `settings`; none by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True)
class Source:
    """One kind of task. `runner` and `texts` name a function as `module:function`; `texts` is empty where items do not
    stand before the corpus does (held-out text), or hold nothing that could be learnt by heart.
    """

    runner: str
    texts: str = ""
    settings: type[Settings] = Settings

    def run(
        self, suite: "Suite", task: "TaskDefinition", subject: "Subject", progress: "Progress | None"
    ) -> "TaskResult":
        """Ask the model. Raises `eval.results.Skipped` where the task has no meaning for it."""
        runner: Runner = _function(self.runner)
        return runner(suite, task, subject, progress)

    def fixed_texts(self, task: "TaskDefinition") -> Iterator[str]:
        """Every text that is asked whatever the corpus holds, with its right answer."""
        if self.texts:
            texts: Texts = _function(self.texts)
            yield from texts(task)


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


SOURCES: dict[str, Source] = {
    "template": Source(runner="eval.harness:run_task", texts="eval.tasks.templates:fixed_texts"),
    "heldout": Source(runner="eval.harness:run_task"),
    "lm_eval": Source(runner="eval.harness:run_task"),
}
