"""Evaluate a checkpoint or an exported model: bits per byte on every held-out domain, and the tasks of the recipe's
suites.

Run: python -m stages.evaluate RECIPE

The artifact holds items.parquet (one row per task item) and documents.parquet (one row per held-out document), so that
two models can be compared item by item.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from stages.base import Facts, Inputs, One, OneOf, Stage
from stages.config import StageConfig, runtime, shared
from stages.curate.artifact import heldout_texts
from stages.journal import Journal
from stages.scored_model import load_scored_model, make_scorer
from stages.store import Store
from stages.suites import SuitesConfig

if TYPE_CHECKING:
    from eval.bits_per_byte import DocumentScore, HeldoutDocument
    from eval.harness import Results
    from eval.scorer import Scorer


class EvaluateConfig(StageConfig):
    """How a model is judged."""

    suites: SuitesConfig = shared(SuitesConfig)

    domain_bytes: int = Field(80_000, ge=1, description="Held-out text to score, in each domain, in UTF-8 bytes")
    bootstrap_draws: int = Field(1000, ge=100, description="Resamplings of documents for the interval of bits per byte")
    seed: int = Field(0, ge=0, description="Of the choice of held-out documents and of the resampling")

    threads: int = runtime(
        1, rounding=True, ge=1, description="CPU threads; one leaves the others to a training that goes on beside"
    )
    batch_tokens: int = runtime(2048, rounding=True, ge=1, description="Most tokens of one forward pass")
    nice: int = runtime(
        0, ge=0, le=19, description="Added to the niceness of the process: 19 lets a training beside it go first"
    )


def run(config: EvaluateConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Score, write the items, return the scores."""
    if config.nice:
        os.nice(config.nice)
    started, started_cpu = time.perf_counter(), time.process_time()
    import torch

    from data.vocabulary.vocabulary import Vocabulary
    from eval.suites import require_harness

    if config.suites.names:
        require_harness()
    torch.set_num_threads(config.threads)
    vocabulary = Vocabulary.load_folder(inputs["tokenizer"].path)
    scorer = make_scorer(load_scored_model(inputs["model"]), vocabulary.end_id, config.batch_tokens)
    texts = heldout_texts(inputs["corpus"].path)
    loaded = time.perf_counter()

    documents, baselines = _choose_documents(texts, config)
    scores = _score_domains(scorer, vocabulary.encode, documents, journal)
    results = _run_suites(scorer, vocabulary, texts, config, journal)
    _write_documents(out / "documents.parquet", scores)
    _write_items(out / "items.parquet", results)
    model = inputs["model"]
    facts = {
        "model": {
            "stage": model.stage,
            "key": model.key,
            "step": model.facts["step"],
            "tokens_seen": model.facts["tokens_seen"],
        },
        "bits_per_byte": _bits_per_byte(scores, config),
        "baselines": baselines,
        "tasks": {task.definition.name: task.facts() for task in results.tasks} if results else {},
        "skipped_tasks": results.skipped if results else {},
    }
    journal.event(
        "metric",
        name="bits_per_byte",
        step=facts["model"]["step"],
        values={d: entry["value"] for d, entry in facts["bits_per_byte"].items()},
    )
    finished = time.perf_counter()
    measurements = {
        "load_seconds": round(loaded - started, 3),
        "score_seconds": round(finished - loaded, 3),
        "cpu_seconds": round(time.process_time() - started_cpu, 3),
    }
    return Facts(facts=facts, measurements=measurements)


def _choose_documents(
    texts: Mapping[str, Sequence[tuple[str, str]]], config: EvaluateConfig
) -> tuple[dict[str, tuple["HeldoutDocument", ...]], dict[str, dict[str, float]]]:
    from eval.bits_per_byte import baselines, choose

    chosen = {domain: choose(pairs, max_bytes=config.domain_bytes, seed=config.seed) for domain, pairs in texts.items()}
    documents = {domain: found for domain, found in chosen.items() if found}
    return documents, {domain: baselines(found) for domain, found in documents.items()}


def _score_domains(
    scorer: "Scorer", encode: Any, documents: Mapping[str, Sequence["HeldoutDocument"]], journal: Journal
) -> dict[str, tuple["DocumentScore", ...]]:
    from eval.bits_per_byte import score_documents

    return {
        domain: score_documents(
            scorer,
            encode,
            found,
            partial(journal.progress, f"held-out {domain}", unit="windows"),
        )
        for domain, found in documents.items()
    }


def _bits_per_byte(
    scores: Mapping[str, Sequence["DocumentScore"]], config: EvaluateConfig
) -> dict[str, dict[str, Any]]:
    from dataclasses import asdict

    from eval.bits_per_byte import bits_per_byte

    return {
        domain: asdict(bits_per_byte(found, draws=config.bootstrap_draws, seed=config.seed))
        for domain, found in scores.items()
    }


def _run_suites(
    scorer: "Scorer",
    vocabulary: Any,
    texts: Mapping[str, Sequence[tuple[str, str]]],
    config: EvaluateConfig,
    journal: Journal,
) -> "Results | None":
    if not config.suites.names:
        return None
    from eval.harness import run_suites
    from eval.suites import load_suites

    with tempfile.TemporaryDirectory() as scratch:
        results = run_suites(
            scorer,
            vocabulary,
            load_suites(config.suites.names),
            heldout=lambda: [pair for pairs in texts.values() for pair in pairs],
            directory=Path(scratch),
            progress=partial(journal.progress, unit="requests"),
        )
    for task, reason in results.skipped.items():
        journal.warning(f"task {task} was left out: {reason}")
    return results


def _write_documents(path: Path, scores: Mapping[str, Sequence["DocumentScore"]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rows = [
        {
            "domain": domain,
            "id": score.id,
            "num_bytes": score.num_bytes,
            "num_tokens": score.num_tokens,
            "num_bits": score.num_bits,
        }
        for domain, found in scores.items()
        for score in found
    ]
    fields = [
        ("domain", pa.string()),
        ("id", pa.string()),
        ("num_bytes", pa.int64()),
        ("num_tokens", pa.int64()),
        ("num_bits", pa.float64()),
    ]
    parquet.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), path)


def _write_items(path: Path, results: "Results | None") -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    fields = [
        ("suite", pa.string()),
        ("task", pa.string()),
        ("item", pa.int64()),
        ("cluster", pa.string()),
        ("prompt_hash", pa.string()),
        ("score", pa.float64()),
        ("gold", pa.int64()),
        ("predicted", pa.int64()),
        ("log_likelihoods", pa.list_(pa.float64())),
    ]
    parquet.write_table(pa.Table.from_pylist(list(_item_rows(results)), pa.schema(fields)), path)


def _item_rows(results: "Results | None") -> Iterator[dict[str, Any]]:
    from dataclasses import asdict

    for task in results.tasks if results else ():
        for item in task.items:
            yield {"suite": task.suite, "task": task.definition.name, **asdict(item)}


def externals(config: EvaluateConfig, store: Store) -> dict[str, Any]:
    """What the suites ask, and the version of the harness that asks it: scores of two of them are not compared."""
    from eval.suites import digest, harness_version

    if not config.suites.names:
        return {}
    return {"suites": digest(config.suites.names), "lm_eval": harness_version()}


STAGE = Stage(
    name="evaluate",
    revision=1,
    config=EvaluateConfig,
    inputs={
        "model": OneOf("checkpoint", "export", default="each"),
        "corpus": One("curate"),
        "tokenizer": One("tokenizer"),
    },
    run=run,
    externals=externals,
)

if __name__ == "__main__":
    from stages.cli import main

    main(STAGE)
