"""The stage: load, score, run the suites, write what each item got."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.base import Facts, Inputs
from stages.curate.artifact import heldout_texts
from stages.evaluate.beside import governor, measured, take_place
from stages.evaluate.config import EvaluateConfig
from stages.evaluate.judged import make_subject
from stages.evaluate.tables import DOCUMENTS, ITEMS, MEASURED, write_documents, write_items
from stages.journal import Journal
from stages.scored_model import load_scored

if TYPE_CHECKING:
    from eval.bits_per_byte import DocumentScore, HeldoutDocument
    from eval.results import Results
    from eval.scoring.scorer import Scorer
    from eval.subject import Subject
    from eval.suites import Suite

Texts = Mapping[str, Sequence[tuple[str, str]]]


def run(config: EvaluateConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Score, write the items, return the scores."""
    take_place(config, inputs.store, journal)
    share = governor(config, inputs.store)
    started, started_cpu = time.perf_counter(), time.process_time()
    import torch

    from eval.sources import SOURCES
    from eval.suites import load_suites, require_harness

    model = inputs["model"]
    suites = load_suites(config.suites.all_names)
    if suites:
        require_harness()
    torch.set_num_threads(config.threads)
    texts = heldout_texts(inputs["corpus"].path)
    with tempfile.TemporaryDirectory(dir=out) as scratch:  # goes with `out` if this process is killed
        scored = load_scored(
            model,
            inputs["tokenizer"].path,
            batch_tokens=config.batch_tokens,
            form=config.form,
            device=config.device,
            precision=config.precision,
        )
        subject = make_subject(inputs, texts, Path(scratch), scored, config.form)
        subject.scorer.between = share
        loaded = time.perf_counter()
        documents, baselines = _choose_documents(texts, config)
        scores = _score_domains(subject.scorer, subject.tokenizer.encode, documents, journal)
        results = _run_suites(suites, subject, journal)
    write_documents(out / DOCUMENTS, scores)
    write_items(out / ITEMS, [task for task in results.tasks if not task.measured])
    write_items(out / MEASURED, [task for task in results.tasks if task.measured])
    of_machine = {task.name for suite in suites for task in suite.tasks if SOURCES[task.source].measured}
    facts = {
        "model": {
            "stage": model.stage,
            "key": model.key,
            "step": model.facts["step"],
            "tokens_seen": model.facts["tokens_seen"],
            "form": config.form if model.stage == "export" else "",
            "start_token": scored.start_token,
        },
        "suites": {suite.name: suite.version for suite in suites},
        "bits_per_byte": _bits_per_byte(scores, config),
        "baselines": baselines,
        "tasks": {task.definition.name: task.facts() for task in results.tasks if not task.measured},
        "skipped_tasks": {name: why for name, why in results.skipped.items() if name not in of_machine},
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
        "beside": measured(share),
        "tasks": {task.definition.name: task.facts() for task in results.tasks if task.measured},
        "skipped_tasks": {name: why for name, why in results.skipped.items() if name in of_machine},
    }
    return Facts(facts=facts, measurements=measurements, measured_files=(MEASURED,))


def _choose_documents(
    texts: Texts, config: EvaluateConfig
) -> tuple[dict[str, tuple["HeldoutDocument", ...]], dict[str, dict[str, float]]]:
    from eval.bits_per_byte import baselines, choose

    chosen = {domain: choose(pairs, max_bytes=config.domain_bytes, seed=config.seed) for domain, pairs in texts.items()}
    documents = {domain: found for domain, found in chosen.items() if found}
    return documents, {domain: baselines(found) for domain, found in documents.items()}


def _score_domains(
    scorer: "Scorer",
    encode: Callable[[str], Sequence[int]],
    documents: Mapping[str, Sequence["HeldoutDocument"]],
    journal: Journal,
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


def _run_suites(suites: Sequence["Suite"], subject: "Subject", journal: Journal) -> "Results":
    from eval.run import run_suites

    results = run_suites(subject, suites, partial(journal.progress, unit="requests"))
    for task, reason in results.skipped.items():
        journal.warning(f"task {task} was left out: {reason}")
    return results
