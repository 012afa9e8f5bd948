"""Evaluations by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.compare.evaluation import Evaluation, TaskScores
from eval.results import ItemResult


def items(
    scores: Sequence[float], *, clusters: Sequence[str] = (), weights: Sequence[float] = (), **more: Any
) -> tuple[ItemResult, ...]:
    """An item for each score, of a cluster of its own unless `clusters` says otherwise."""
    return tuple(
        ItemResult(
            **{
                "item": i,
                "cluster": clusters[i] if clusters else str(i),
                "prompt_hash": f"hash {i}",
                "score": float(score),
                "weight": weights[i] if weights else 1.0,
                **more,
            }
        )
        for i, score in enumerate(scores)
    )


def task(found: Sequence[ItemResult], **more: Any) -> TaskScores:
    settings = {
        "suite": "core",
        "axis": "capability",
        "metric": "acc",
        "higher_is_better": True,
        "alert_threshold": 0.0,
        "version": 1,
        "shots": 0,
    }
    return TaskScores(items=tuple(found), **{**settings, **more})


def evaluation(tasks: Mapping[str, TaskScores], **more: Any) -> Evaluation:
    settings: dict[str, Any] = {
        "tokenizer": "tokenizer",
        "corpus": "corpus",
        "machine": "2 cores",
        "suites": {"core": 1},
        "skipped": {},
    }
    return Evaluation(tasks=tasks, **{**settings, **more})
