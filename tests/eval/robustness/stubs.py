"""Subjects whose answers follow from the text that they are asked about."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eval.results import TaskResult
from eval.run import run_suites
from eval.scoring.scorer import Score
from eval.subject import Subject
from eval.suites import Suite, TaskDefinition

Judge = Callable[[str], float]


class Utf8:
    """A token a byte; 0 is the end of a document."""

    size = 257

    def encode(self, text: str) -> list[int]:
        return [byte + 1 for byte in text.encode()]

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token - 1 for token in tokens if token > 0).decode("utf-8", "replace")


class JudgingScorer:
    """Log-likelihoods by a function of the whole text. Remembers what it was asked."""

    prefix_token, always_prefix = 0, True

    def __init__(self, judge: Judge, max_length: int = 4096) -> None:
        self.model = SimpleNamespace(max_length=max_length, vocabulary_size=Utf8.size)
        self.asked: list[tuple[str, str]] = []
        self._judge = judge

    def score(self, requests: Sequence[tuple[Sequence[int], Sequence[int]]], progress: Any = None) -> list[Score]:
        decode = Utf8().decode
        self.asked += [(decode(context), decode(answer)) for context, answer in requests]
        return [
            Score(log_likelihood=self._judge(decode([*context, *answer])), is_greedy=False, num_tokens=len(answer))
            for context, answer in requests
        ]

    def rolling(self, sequences: Sequence[Sequence[int]], progress: Any = None) -> list[Score]:
        return self.score([((), sequence) for sequence in sequences], progress)


def subject(scorer: Any, heldout: Mapping[str, Sequence[tuple[str, str]]] | None = None, **more: Any) -> Subject:
    settings: dict[str, Any] = {
        "training": lambda most, seed: [],
        "canaries": None,
        "chat": None,
        "num_parameters": 1,
        "model_bytes": 2**20,
        "scratch": Path(),
    }
    return Subject(scorer=scorer, tokenizer=Utf8(), heldout=heldout or {}, **{**settings, **more})


def task(source: str, settings: Mapping[str, Any], name: str = "mine", **more: Any) -> TaskDefinition:
    return TaskDefinition(**{"name": name, "source": source, "version": 1, "limit": 40, "settings": settings, **more})


def run(judged: Subject, *tasks: TaskDefinition, axis: Any = "long_tail") -> tuple[TaskResult, ...]:
    results = run_suites(judged, [Suite(name="mine", axis=axis, version=1, tasks=tasks)])
    assert results.skipped == {}
    return results.tasks


MISMATCHED = -10.0
PAIRS = {")": "(", "]": "[", "}": "{"}


def balance(text: str) -> float:
    """How many brackets are open at the end, as a negative number; MISMATCHED if one is closed by another kind."""
    opened: list[str] = []
    for character in text:
        if character in PAIRS.values():
            opened.append(character)
        elif character in PAIRS and (not opened or opened.pop() != PAIRS[character]):
            return MISMATCHED
    return -float(len(opened))
