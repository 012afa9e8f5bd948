"""A whole run as the report finds it: small manifests, without the work. A domain and a sample hold what must not reach
the page as markup."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.curate.tables import SAMPLES
from stages.store import Artifact, Store
from tests.stages.export.made import publish
from tests.stages.reported_evaluation import MEASURED, NASTY, comparison, difference, judged, write_flips, write_items


def score(value: float) -> dict[str, Any]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1, "num_bytes": 1000, "num_documents": 5}


def form(num_bytes: int, increase: float | None, *reasons: str) -> dict[str, Any]:
    return {
        "bytes": num_bytes,
        "bits_per_byte": {},
        "increase": increase,
        "accepted": not reasons,
        "reasons": list(reasons),
        "same_greedy_tokens": True,
        "greedy": {"compared": 5, "equal": 5, "excluded": 0},
    }


STEPS = ["read", "clean", "language", "quality", "exact duplicates", "near duplicates", "decontamination"]
LEFT = [[13, 1033], [13, 1033], [13, 1030], [12, 1027], [10, 1000], [10, 1000], [10, 1000]]


def corpus_facts() -> dict[str, Any]:
    """Two domains and two languages alike; one language has nothing left, and one is known to no tokenizer."""
    dropped = {
        "exact duplicate of training text": {"documents": 2, "bytes": 27},
        "quality: too short": {"documents": 1, "bytes": 3},
    }
    domain = {
        "documents_in": 13, "bytes_in": 1033, "train_documents": 8, "train_bytes": 900, "heldout_documents": 2,
        "heldout_bytes": 100, "dropped": dropped, "edited": {"pii": 5, "repeated lines": -2},
    }  # fmt: skip
    language = {"documents_in": 13, "bytes_in": 1033, "kept_documents": 10, "kept_bytes": 1000, "dropped": dropped}
    lost = language | {"kept_documents": 0, "kept_bytes": 0, "documents_in": 3, "bytes_in": 30}
    return {
        "domains": {NASTY: domain, "code": domain},
        "languages": {"en": language, "zu": lost},
        "funnel": {
            "steps": STEPS,
            "domains": {NASTY: LEFT, "code": LEFT},
            "languages": {"en": LEFT, "zu": [[3, 30], [3, 30]] + [[0, 0]] * 5},
        },
        "near_duplicates": {
            "bands": 16, "rows": 6, "expected_recall_at_threshold": 0.992345, "candidates": 41, "compared_exactly": 40,
            "too_short_for_an_ngram": 0,
        },
        "sources": [
            {"source": "a.jsonl", "kind": "jsonl", "documents": {"code": 26}, "bytes": {"code": 2066},
             "rejected": {"not JSON": 7}, "repaired": {"NUL": 2}, "renamed_ids": 5, "stopped_at_max_bytes": ["code"]}
        ],
        "not_judged": {"zu": {"code": {"documents": 1, "bytes": 3}}},
        "pii": {"email": 31},
        "decontamination": {
            "heldout": {"items": 4, "too_short": 1, "documents": 2},
            "tasks": {"lambada": {"items": 500, "too_short": 17, "documents": 3}},
            "waived": ["boolq"],
        },
    }  # fmt: skip


SURVIVAL = {
    "wall_seconds": 7200.0,
    "productive_seconds": 6120.0,
    "effective_training_time": 0.85,
    "lost_seconds": {"down": 600.0, "replayed: kill": 300.0, "hang": 90.0, "starting": 60.0, "checkpoints": 30.0},
    "attempts": 3,
    "incidents": 2,
    "ends": [
        {"attempt": 1, "kind": "kill", "cause": NASTY, "decision": "relaunch", "step": 2, "time": 1.7e9,
         "noticed_seconds": None, "replayed_seconds": 300.0, "resumed_step": 1, "replayed_steps": 1,
         "recovered_seconds": 12.5},
        {"attempt": 2, "kind": "hang", "cause": "rank 1", "decision": "relaunch", "step": 3, "time": 1.7e9,
         "noticed_seconds": 80.0, "replayed_seconds": 0.0},
    ],
    "checkpoints": {
        "local": {"count": 31, "bytes": 4e8, "blocked_seconds": 0.0125, "waited_seconds": 0.0, "seconds": 1.5,
                  "heldout_seconds": 0.0}
    },
}  # fmt: skip


def write_samples(folder: Path) -> None:
    rows = [
        {"id": f"d{n}", "domain": "code", "source": "a.jsonl", "language": "en", "reason": reason, "detail": "bound 5",
         "score": score, "survivor": survivor, "num_bytes": 3, "excerpt": excerpt}
        for n, (reason, score, survivor, excerpt) in enumerate(
            [("exact duplicate of training text", 1.0, "kept-1", NASTY), ("quality: too short", None, None, "so short")]
        )
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, SAMPLES), folder / "samples.parquet")


def pretrain_files(folder: Path) -> None:
    losses = [5.0, None, 4.0, 3.5]
    metrics = [
        {"step": i, "loss": loss, "learning_rate": 0.1, "gradient_norm": 1.0, "tokens": 100 * i}
        for i, loss in enumerate(losses, 1)
    ]
    timing: list[dict[str, Any]] = [{"step": i, "seconds": 0.5, "data_wait_seconds": 0.0} for i in range(1, 5)]
    for line in metrics:
        line["gradient_norms"] = {} if line["loss"] is None else {"attention": 0.6, "norm": 0.8}
    metrics[2] |= {"update_norms": {"attention": 0.5, "norm": None}, "parameter_norms": {"attention": 4.0, "norm": 1.0}}
    for line in timing:
        line["mfu"] = 0.25
    timing[2]["communication"] = {"exposed_share": 0.125}
    for name, lines in (("metrics.jsonl", metrics), ("timing.jsonl", timing)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def made_run(store: Store) -> dict[str, tuple[Artifact, ...]]:
    """The inputs of the stage by their names."""
    tokenizer = {
        "vocabulary_size": 500,
        "encoding": {"method": "plain", "why": "a unigram model"},
        "bytes_per_token": {NASTY: None, "code": 2.7},
        "fertility": {NASTY: None, "code": 1.9},
        "languages": {"en": {"documents": 5, "tokens": 77, "bytes_per_token": 3.25, "fertility": 1.5}},
        "measured": {"documents": 8, "bytes": 900, "lossy_documents": 0},
        "unused_pieces": {"count": 3, "first": [NASTY]},
    }
    tokens = {"train_tokens": 300, "heldout_tokens": 33}
    plan = {
        "parameters": {"total": 1000},
        "steps": 4,
        "tokens": 400,
        "memory": {"total": 10**8, "num_processes": 1},
        "domains": {NASTY: {"epochs": 1.25, "wanted_epochs": 8.5}},
        "warnings": ["a warning of the plan"],
    }
    checks = [
        {"name": "disk", "status": "pass", "detail": "enough"},
        {"name": "exporters", "status": "not_applicable", "detail": NASTY},
    ]
    nothing = lambda folder: None  # noqa: E731
    checkpoints = [
        publish(store, "checkpoint", nothing, {"step": step, "tokens_seen": 100 * step, "heldout_loss": 5 - step / 4})
        for step in (2, 4)
    ]
    pretrain = {
        "num_steps": 4,
        "tokens": 400,
        "first_loss": 5.0,
        "final_loss": 3.5,
        "parameters": 1000,
        "packing": {
            "kind": "length-buckets",
            "cross_document_attention": False,
            "domains": {
                NASTY: {
                    "tokens": 300,
                    "unread_tokens": 1234,
                    "sequences": {"64": 4, "16": 3},
                    "padding_tokens": 4,
                    "waste": 0.0125,
                    "cut_documents": 2,
                }
            },
        },
        "mixture": {NASTY: {"weight": 0.125, "epochs": 1.2578, "wanted_epochs": 8.5}},
        "excluded": [{"first": 2, "last": 3, "step": 3}],
        "checkpoints": [{"step": c.facts["step"], "key": c.key, "digest": c.digest} for c in checkpoints],
    }
    evaluations = [
        publish(
            store,
            "evaluate",
            write_items(n),
            {
                "model": {
                    "stage": "checkpoint",
                    "key": c.key,
                    "step": c.facts["step"],
                    "tokens_seen": c.facts["tokens_seen"],
                    "form": "",
                    "start_token": "always",
                },
                "bits_per_byte": {NASTY: score(3.0 - n), "code": score(2.0)},
                "baselines": {NASTY: {"gzip-9": 2.5}, "code": {"gzip-9": 1.5}},
                "tasks": judged(n),
                "skipped_tasks": {"word_order": "no sentence"},
            },
            measurements={
                "tasks": MEASURED if n else {},
                "skipped_tasks": {"energy": f"not told {NASTY}"} if n else {},
            },
        )
        for n, c in enumerate(checkpoints)
    ]
    baseline = publish(
        store, "baseline", nothing,
        {"name": "main", "serial": 3, "evaluation": evaluations[0].key, "label": "made", "of": evaluations[0].facts},
    )  # fmt: skip
    compared = publish(
        store, "compare", write_flips, comparison(evaluations[1], baseline),
        measurements={"verdict": "no_difference", "regressed": [], "improved": [],
                      "tasks": {"first_token": difference(0.1, "no_difference", higher_is_better=False)}},
    )  # fmt: skip
    export = {
        "samples": [{"prompt": "def ", "sampled": NASTY, "greedy": "x"}],
        "forms": {
            "hf": form(4000, 0.0),
            "gguf-q4_0": form(700, 0.2, "bits per byte rise"),
            "other": form(0, None, "does not fit"),
        },
    }
    return {
        "corpus": (publish(store, "curate", write_samples, corpus_facts()),),
        "tokenizer": (publish(store, "tokenizer", nothing, tokenizer),),
        "tokens": (publish(store, "pretokenize", nothing, {"domains": {NASTY: tokens, "code": tokens}}),),
        "plan": (publish(store, "plan", nothing, plan),),
        "preflight": (
            publish(
                store, "preflight", lambda folder: (folder / "checks.json").write_text(json.dumps(checks)) and None, {}
            ),
        ),
        "pretrain": (
            publish(
                store,
                "pretrain",
                pretrain_files,
                pretrain,
                measurements={
                    "tokens_per_second": 200.0,
                    "peak_memory_bytes": 2 * 10**8,
                    "data_wait_ratio": 0.0123,
                    "survival": SURVIVAL,
                },
            ),
        ),
        "evaluations": tuple(reversed(evaluations)),
        "comparisons": (compared,),
        "export": (
            publish(
                store,
                "export",
                nothing,
                export,
                measurements={"forms": {"hf": {"load_seconds": 0.1, "tokens_per_second": 12.0}}},
            ),
        ),
    }
