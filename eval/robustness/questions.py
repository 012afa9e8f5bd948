"""Questions with choices, taken from the items of other tasks, and how a model answers them."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from data.errors import InputError
from eval.results import Skipped, hashed
from eval.robustness.settings import LM_EVAL, BaseSettings
from eval.scoring.encoding import encode_pair
from eval.suites import TaskDefinition
from eval.tasks import heldout, templates
from eval.tasks.items import Item

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress, Score
    from eval.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which of `choices` is right after `context`; `context` is empty where whole texts are to be chosen from. `base`:
    the task that it comes from. `cluster`: as of an item.
    """

    context: str
    choices: tuple[str, ...]
    gold: int
    base: str
    cluster: str

    @property
    def texts(self) -> tuple[str, ...]:
        """The whole text of each choice."""
        return tuple(self.context + choice for choice in self.choices)

    def hash(self, *more: object) -> str:
        """sha256, in hex, of what is asked; `more`: what else of it is settled."""
        return hashed(self.context, self.choices, self.gold, *more)


@dataclass(frozen=True, kw_only=True)
class Numbered:
    """A question with its place in the task, which a larger limit does not change."""

    item: int
    question: Question


def read_questions(task: TaskDefinition, bases: Sequence[str], subject: "Subject") -> tuple[Numbered, ...]:
    """At most `task.limit` questions, of each base in turn; a base that runs out leaves its places empty.

    Raises Skipped if the held-out text gives none, InputError for a task of lm-eval's that cannot be read or changed.
    """
    found = _in_turn([_questions(base, task, subject) for base in bases], task.limit)
    if not found:
        raise Skipped(f"the held-out text holds no item of {', '.join(bases)}")
    return found


def fixed_questions(task: TaskDefinition, bases: Sequence[str]) -> tuple[Numbered, ...]:
    """Those of `read_questions` that are the same whatever the corpus holds: of the template bases."""
    return _in_turn([_template(base, task) if base in templates.GENERATORS else () for base in bases], task.limit)


def _in_turn(found: Sequence[Sequence[Question]], limit: int) -> tuple[Numbered, ...]:
    places = itertools.product(range(-(-limit // len(found))), range(len(found)))
    return tuple(
        Numbered(item=item, question=found[base][i])
        for item, (i, base) in enumerate(itertools.islice(places, limit))
        if i < len(found[base])
    )


def _questions(base: str, task: TaskDefinition, subject: "Subject") -> tuple[Question, ...]:
    if base.startswith(LM_EVAL):
        return tuple(itertools.islice(_lm_eval(base), task.limit))
    if base in templates.GENERATORS:
        return _template(base, task)
    return _of(base, heldout.heldout_items(base, subject.heldout, seed=task.seed, limit=task.limit))


def _template(base: str, task: TaskDefinition) -> tuple[Question, ...]:
    return _of(base, templates.template_items(base, seed=task.seed, limit=task.limit))


def _of(base: str, items: Sequence[Item]) -> tuple[Question, ...]:
    return tuple(
        Question(context="", choices=item.choices, gold=item.gold, base=base, cluster=f"{base}/{item.cluster}")
        for item in items
    )


def _lm_eval(base: str) -> Iterator[Question]:
    from eval.harness.tasks import lm_eval_tasks, load_task

    for name, task in load_task(lm_eval_tasks(), base.removeprefix(LM_EVAL))["tasks"].items():
        if task.OUTPUT_TYPE != "multiple_choice" or task.multiple_input or task.multiple_target:
            raise InputError(f"settings.bases: {base}: only a task with one context and several choices can be changed")
        for number, doc in enumerate(task.eval_docs):
            yield Question(
                context=task.doc_to_text(doc),
                choices=tuple(f"{task.config.target_delimiter}{choice}" for choice in task.doc_to_choice(doc)),
                gold=int(task.doc_to_target(doc)),
                base=base,
                cluster=f"{base}/{name}/{number}",
            )


def score_questions(
    questions: Sequence[Question], subject: "Subject", progress: "Progress | None"
) -> list[tuple[float, ...]]:
    """The log-likelihood of each choice of each question."""
    encode = subject.tokenizer.encode
    requests = [encode_pair(encode, question.context, choice) for question in questions for choice in question.choices]
    scores: Iterator[Score] = iter(subject.scorer.score(requests, progress))
    return [
        tuple(score.log_likelihood for score in itertools.islice(scores, len(question.choices)))
        for question in questions
    ]


def plain_tokens(subject: "Subject", text: str) -> list[int]:
    """Without the start token that some tokenizers put before a text: to stand after other tokens."""
    tokens = list(subject.tokenizer.encode(text))
    return tokens[1:] if tokens[:1] == [subject.scorer.prefix_token] else tokens


def predicted(log_likelihoods: Sequence[float]) -> int:
    """The most likely choice; the first of equals."""
    return int(np.argmax(log_likelihoods))


def is_right(question: Question, log_likelihoods: Sequence[float]) -> float:
    """1 if the right choice is the most likely one, else 0."""
    return float(predicted(log_likelihoods) == question.gold)


def fixed_texts(task: TaskDefinition) -> Iterator[str]:
    """The texts of template bases, with their right answers; for a task that changes them only as a model answers."""
    settings = task.chosen(BaseSettings)
    for numbered in fixed_questions(task, settings.bases):
        yield numbered.question.texts[numbered.question.gold]
