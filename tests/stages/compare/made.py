"""Evaluations as artifacts, without a model."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.bits_per_byte import DocumentScore
from eval.results import ItemResult, TaskResult
from eval.suites import TaskDefinition
from stages.base import Facts, Inputs, Job, One, OneOf, Stage, execute
from stages.config import StageConfig
from stages.evaluate.tables import DOCUMENTS, ITEMS, MEASURED, write_documents, write_items
from stages.journal import Journal
from stages.store import Artifact, Store
from tests.eval.compare.made import items
from tests.stages.export.made import publish


class MadeConfig(StageConfig):
    number: int


def result(name: str, found: Sequence[ItemResult], *, measured: bool = False, **more: Any) -> TaskResult:
    """A task of the suite `core`, or `efficiency` if it is measured."""
    suite, axis = ("efficiency", "efficiency") if measured else ("core", "capability")
    definition = TaskDefinition(**{"name": name, "source": "template", "version": 1, "limit": 999, **more})
    return TaskResult(suite=suite, axis=axis, definition=definition, items=tuple(found), measured=measured)


def core(wrong: int, of: int = 60) -> list[TaskResult]:
    """One task with so many items wrong."""
    return [result("quote", items([0.0] * wrong + [1.0] * (of - wrong)), alert_threshold=0.05)]


def documents(factor: float = 1.0, number: int = 30) -> dict[str, list[DocumentScore]]:
    """Scores of as many documents of one domain."""
    return {
        "code": [
            DocumentScore(id=f"code/{i}", text_hash=f"hash {i}", num_bytes=500 + i, num_tokens=9, num_bits=b)
            for i, b in enumerate((900.0 + 7 * i) * factor for i in range(number))
        ]
    }


def publish_model(store: Store, step: int, *, last: bool, training: str = "training") -> Artifact:
    """A checkpoint without weights, of the training whose key is `training`."""

    def run(config: CheckpointConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
        (out / "weights").write_text(f"{training} {step}")
        return Facts(facts={"step": step, "tokens_seen": 100 * step, "last": last})

    stage = Stage(name="checkpoint", revision=1, config=CheckpointConfig, inputs={}, run=run)
    config = CheckpointConfig(parent=training, step=step)
    return execute(Job(stage=stage, config=config, externals={}, inputs={}, label="made"), store)


class CheckpointConfig(StageConfig):
    parent: str
    step: int


def publish_export(store: Store, checkpoint: Artifact) -> Artifact:
    """An export of a checkpoint."""

    def run(config: MadeConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
        return Facts(facts=dict(inputs["checkpoint"].facts))

    stage = Stage(name="export", revision=1, config=MadeConfig, inputs={"checkpoint": One("checkpoint")}, run=run)
    inputs = {"checkpoint": (checkpoint,)}
    return execute(Job(stage=stage, config=MadeConfig(number=0), externals={}, inputs=inputs, label="made"), store)


def publish_evaluation(
    store: Store,
    model: Artifact,
    tasks: Iterable[TaskResult],
    *,
    scores: Mapping[str, Sequence[DocumentScore]] | None = None,
    skipped: Mapping[str, str] | None = None,
    harness: str = "0.4.13",
    number: int = 0,
) -> Artifact:
    """What the stage `evaluate` publishes. `number` tells apart two evaluations of one model."""
    found = list(tasks)

    def run(config: MadeConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
        write_items(out / ITEMS, [task for task in found if not task.measured])
        write_items(out / MEASURED, [task for task in found if task.measured])
        write_documents(out / DOCUMENTS, scores or {})
        facts = {
            "model": {
                "stage": model.stage,
                "key": model.key,
                "step": model.facts["step"],
                "tokens_seen": model.facts["tokens_seen"],
            },
            "suites": {task.suite: 1 for task in found},
            "tasks": {task.definition.name: task.facts() for task in found if not task.measured},
            "skipped_tasks": dict(skipped or {}),
        }
        measured = {task.definition.name: task.facts() for task in found if task.measured}
        measurements = {"tasks": measured, "skipped_tasks": {}}
        return Facts(facts=facts, measurements=measurements, measured_files=(MEASURED,))

    inputs = {"model": OneOf("checkpoint", "export"), "corpus": One("curate"), "tokenizer": One("tokenizer")}
    stage = Stage(name="evaluate", revision=1, config=MadeConfig, inputs=inputs, run=run)
    present = {name: next(store.all(name), None) for name in ("curate", "tokenizer")}
    chosen = {
        "model": model,
        "corpus": present["curate"] or publish(store, "curate", lambda folder: None, {}),
        "tokenizer": present["tokenizer"] or publish(store, "tokenizer", lambda folder: None, {}),
    }
    job = Job(
        stage=stage,
        config=MadeConfig(number=number),
        externals={"lm_eval": harness},
        inputs={name: (artifact,) for name, artifact in chosen.items()},
        label="made",
    )
    return execute(job, store)
