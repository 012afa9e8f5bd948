"""What a comparison needs to know of an evaluation: its items, and the circumstances under which scores compare."""

from collections.abc import Mapping
from dataclasses import dataclass

from eval.results import ItemResult


@dataclass(frozen=True, kw_only=True)
class TaskScores:
    """A task of an evaluation with its items. measured: scores are times or sizes of memory. software: what asked and
    judged it, with versions, where those move the score. per_token: a score depends on the number of tokens, so
    that it means another thing under another tokenizer. exact: one item, which is no sample.
    """

    suite: str
    axis: str
    metric: str
    higher_is_better: bool
    alert_threshold: float
    version: int
    shots: int
    items: tuple[ItemResult, ...]
    measured: bool = False
    software: str = ""
    per_token: bool = False
    exact: bool = False


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """All tasks of one model. tokenizer, corpus: digests; machine: on what, and with which settings, times were
    measured. suites: name -> version of those that were asked. skipped: task -> why it could not be asked.
    """

    tokenizer: str
    corpus: str
    machine: str
    suites: Mapping[str, int]
    tasks: Mapping[str, TaskScores]
    skipped: Mapping[str, str]
