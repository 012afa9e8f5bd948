"""An evaluation, or a baseline made of one, as `eval.compare` takes it."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.compare.baselines import BASELINE
from stages.evaluate.tables import DOCUMENTS, ITEMS, MEASURED
from stages.store import Artifact

if TYPE_CHECKING:
    from eval.compare.evaluation import Evaluation, TaskScores
    from eval.results import ItemResult

HELDOUT = "heldout"  # the suite under which bits per byte by domain are compared


def scores_of(artifact: Artifact) -> dict[str, Any]:
    """The facts of the evaluation."""
    return artifact.facts["of"] if artifact.stage == BASELINE else artifact.facts


def read_evaluation(artifact: Artifact, *, bits_per_byte_threshold: float) -> "Evaluation":
    """All tasks of an evaluation, bits per byte on each domain among them."""
    from eval.compare.evaluation import Evaluation

    made, facts = artifact.manifest, scores_of(artifact)
    (model,) = made.inputs["model"]
    (tokenizer,) = made.inputs["tokenizer"]
    (corpus,) = made.inputs["corpus"]
    told = {**facts["tasks"], **made.measurements["tasks"]}
    items = {**_items(artifact.path / ITEMS), **_items(artifact.path / MEASURED)}
    tasks = {
        name: _task(entry, items[name], made.externals, measured=name in made.measurements["tasks"])
        for name, entry in told.items()
    }
    return Evaluation(
        tokenizer=model.digest if model.stage == "adopt" else tokenizer.digest,
        corpus=corpus.digest,
        machine=_machine(made.provenance),
        suites={HELDOUT: 1, **facts["suites"]},
        tasks={**dict(_domains(artifact.path / DOCUMENTS, bits_per_byte_threshold)), **tasks},
        skipped={**facts["skipped_tasks"], **made.measurements["skipped_tasks"]},
    )


def _machine(provenance: Mapping[str, Any]) -> str:
    """What times depend on: the kind of machine, and the settings that move them."""
    machine = provenance.get("evaluated", provenance)["machine"]
    return "; ".join([machine, *(f"{name} = {value}" for name, value in sorted(provenance["rounding"].items()))])


def _task(
    told: Mapping[str, Any], items: "tuple[ItemResult, ...]", externals: Mapping[str, Any], *, measured: bool
) -> "TaskScores":
    from eval.compare.evaluation import TaskScores
    from eval.sources import SOURCES

    source = SOURCES[told["source"]]
    return TaskScores(
        suite=told["suite"],
        axis=told["axis"],
        metric=told["metric"],
        higher_is_better=told["higher_is_better"],
        alert_threshold=told["alert_threshold"],
        version=told["version"],
        shots=told["shots"],
        items=items,
        measured=measured,
        software=_software(told["source"], externals),
        per_token=source.per_token,
        exact=source.exact,
    )


def _software(source: str, externals: Mapping[str, Any]) -> str:
    """What asked a task and what judged its answers, with the versions that the evaluation recorded."""
    from eval.sources import SOURCES

    asked = [f"lm-eval {externals['lm_eval']}"] if SOURCES[source].through_harness and "lm_eval" in externals else []
    return ", ".join([*asked, *([str(externals[source])] if source in externals else [])])


def _items(path: Path) -> "dict[str, tuple[ItemResult, ...]]":
    """Task -> its items."""
    import pyarrow.parquet as parquet

    from eval.results import ItemResult

    found: dict[str, list[ItemResult]] = {}
    for row in parquet.read_table(path).to_pylist():
        del row["suite"]
        likelihoods = tuple(row.pop("log_likelihoods"))
        found.setdefault(row.pop("task"), []).append(ItemResult(**row, log_likelihoods=likelihoods))
    return {task: tuple(items) for task, items in found.items()}


def _domains(path: Path, threshold: float) -> "Iterator[tuple[str, TaskScores]]":
    """A task for each domain of held-out text, with a document as item: its bits per byte, weighed by its bytes."""
    import pyarrow.parquet as parquet

    from eval.compare.evaluation import TaskScores
    from eval.results import ItemResult

    documents: dict[str, list[ItemResult]] = {}
    times: Counter[tuple[str, str]] = Counter()  # ids are the user's, who may give one to two documents
    for row in parquet.read_table(path).to_pylist():
        name = f"{times[row['domain'], row['id']]}/{row['id']}"
        times[row["domain"], row["id"]] += 1
        item = ItemResult(
            item=int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:7]),
            cluster=row["id"],
            prompt_hash=row["text_hash"],
            score=row["num_bits"] / row["num_bytes"],
            weight=float(row["num_bytes"]),
            group=row["domain"],
            evidence=row["id"],
        )
        documents.setdefault(row["domain"], []).append(item)
    for domain, items in documents.items():
        yield (
            f"bits_per_byte/{domain}",
            TaskScores(
                suite=HELDOUT,
                axis="capability",
                metric="bits_per_byte",
                higher_is_better=False,
                alert_threshold=threshold,
                version=1,
                shots=0,
                items=tuple(items),
            ),
        )
