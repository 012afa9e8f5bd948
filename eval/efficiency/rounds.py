"""Rounds of a measurement and the task's result that they make."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eval.efficiency.bench import Bench
from eval.results import ItemResult, TaskResult, hashed
from eval.suites import Suite, TaskDefinition

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress
    from eval.subject import Subject

PERCENTILES = (50, 90, 99)


def over_reference(
    num: int,
    subject: "Subject",
    bench: Bench,
    once: Callable[[], float],
    progress: "Progress | None",
    warm_up: int = 1,
) -> tuple[list[float], list[float]]:
    """`num` times log2(what `once` gives in seconds / the reference's seconds just before and after), and these
    seconds of the reference. Before that, `once` is called `warm_up` times.
    """
    for _ in range(warm_up):
        once()
    bench.reference_seconds()
    scores, references = [], []
    for i in range(num):
        subject.scorer.between()
        before = bench.reference_seconds()
        seconds = once()
        references.append((before + bench.reference_seconds()) / 2)
        scores.append(math.log2(seconds / references[-1]))
        if progress is not None:
            progress(i + 1, num)
    return scores, references


def item(number: int, score: float, task: TaskDefinition, *asked: object) -> ItemResult:
    """A round. `asked`: what settles the measurement besides the task."""
    return ItemResult(
        item=number, cluster=str(number), prompt_hash=hashed(task.source, task.settings, *asked), score=score
    )


def measured(suite: Suite, task: TaskDefinition, items: Sequence[ItemResult], details: dict[str, Any]) -> TaskResult:
    """The result of a task whose scores are not the same every time."""
    return TaskResult(
        suite=suite.name, axis=suite.axis, definition=task, items=tuple(items), details=details, measured=True
    )


def device_type(subject: "Subject") -> str:
    """Where the model's logits are computed: `cpu`, `cuda`, ..."""
    import torch

    return subject.scorer.model.logits(torch.zeros((1, 1), dtype=torch.int64), 1).device.type


def told(bench: Bench, references: Sequence[float]) -> dict[str, Any]:
    """How it was measured."""
    return {
        "measured_by": f"log2 of {bench.described}",
        "reference_milliseconds": round(1000 * percentile(references, 50), 4),
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """In milliseconds of elapsed time."""
    return {f"milliseconds_p{share}": round(1000 * percentile(seconds, share), 4) for share in PERCENTILES}


def percentile(values: Sequence[float], share: float) -> float:
    """Interpolated between neighbours."""
    import numpy as np

    return float(np.percentile(values, share))
