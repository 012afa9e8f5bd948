"""What an evaluation keeps of each item and document, so that two models can be compared item by item.

items.parquet: a row for each item of a task. measured.parquet: the same of tasks whose scores are times or sizes of
memory. documents.parquet: a row for each held-out document that bits per byte were computed on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eval.bits_per_byte import DocumentScore
    from eval.results import TaskResult

ITEMS, MEASURED, DOCUMENTS = "items.parquet", "measured.parquet", "documents.parquet"


def write_items(path: Path, tasks: Iterable["TaskResult"]) -> None:
    """A row for each item of each task."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    fields = [
        ("suite", pa.string()),
        ("task", pa.string()),
        ("item", pa.int64()),
        ("cluster", pa.string()),
        ("group", pa.string()),
        ("prompt_hash", pa.string()),
        ("score", pa.float64()),
        ("weight", pa.float64()),
        ("gold", pa.int64()),
        ("predicted", pa.int64()),
        ("log_likelihoods", pa.list_(pa.float64())),
        ("evidence", pa.string()),
    ]
    rows = [
        {"suite": task.suite, "task": task.definition.name, **asdict(item)} for task in tasks for item in task.items
    ]
    parquet.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), path)


def write_documents(path: Path, scores: Mapping[str, Sequence["DocumentScore"]]) -> None:
    """A row for each document of each domain."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    fields = [
        ("domain", pa.string()),
        ("id", pa.string()),
        ("text_hash", pa.string()),
        ("num_bytes", pa.int64()),
        ("num_tokens", pa.int64()),
        ("num_bits", pa.float64()),
    ]
    rows = [{"domain": domain, **asdict(score)} for domain, found in scores.items() for score in found]
    parquet.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), path)
