"""The record of what was dropped: every document with its reason, and a few of each reason to look at.

dropped.parquet lists all; samples.parquet holds for each reason the NUM_SAMPLES documents with the smallest digest of
(reason, id), with the beginning of their text, so that the choice is fair and the same for any order of work.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stages.curate.tables import COMPRESSION, DROPPED, SAMPLES, few_at_a_time

NUM_SAMPLES = 20
EXCERPT_CHARACTERS = 300
ROW_GROUP_ROWS = 1 << 17


def sample(dropped: pa.Table, texts: pa.LargeStringArray | None = None) -> pa.Table:
    """The samples among dropped documents. texts: of the same rows; None for records that were never a text."""
    rows = chosen_rows(dropped.column("reason").to_pylist(), dropped.column("id").to_pylist())
    chosen = dropped.take(pa.array(rows, pa.int64()))
    excerpts = [""] * len(rows) if texts is None else [texts[row].as_py()[:EXCERPT_CHARACTERS] for row in rows]
    return chosen.append_column(SAMPLES.field("excerpt"), pa.array(excerpts, pa.string()))


def chosen_rows(reasons: Sequence[str], ids: Sequence[str]) -> list[int]:
    """The rows to show, by reason and then by digest."""
    by_reason: dict[str, list[tuple[bytes, int]]] = {}
    for row, (reason, name) in enumerate(zip(reasons, ids, strict=True)):
        by_reason.setdefault(reason, []).append((digest(reason, name), row))
    return [row for reason in sorted(by_reason) for _, row in sorted(by_reason[reason])[:NUM_SAMPLES]]


def digest(reason: str, name: str) -> bytes:
    """What decides whether a document is shown."""
    return hashlib.blake2b(f"{reason}\0{name}".encode(), digest_size=16).digest()


def dropped_table(
    *,
    ids: pa.Array,
    domain: str,
    source: pa.Array,
    language: pa.Array,
    reason: pa.Array,
    detail: pa.Array,
    score: np.ndarray | pa.Array,
    survivor: pa.Array | None,
    num_bytes: np.ndarray,
) -> pa.Table:
    """`tables.DROPPED` from its columns."""
    n = len(ids)
    return pa.table(
        [
            ids,
            pa.repeat(pa.scalar(domain, pa.string()), n),
            source,
            language,
            reason,
            detail,
            pa.array(score, pa.float64(), from_pandas=True),  # NaN: nothing was measured
            pa.nulls(n, pa.string()) if survivor is None else survivor,
            pa.array(num_bytes, pa.int64()),
        ],
        schema=DROPPED,
    )


def write_dropped(tables: Iterable[pa.Table], path: Path) -> None:
    """dropped.parquet, in the order of the tables; one of them is in memory at a time."""
    with pq.ParquetWriter(path, DROPPED, compression=COMPRESSION) as writer:
        for table in tables:
            if table.num_rows:
                writer.write_table(table, row_group_size=ROW_GROUP_ROWS)


def write_samples(tables: Iterable[pa.Table], path: Path) -> None:
    """samples.parquet, by reason."""
    found = SAMPLES.empty_table()
    for some in few_at_a_time(tables):
        every = pa.concat_tables([found, *some])
        rows = chosen_rows(every.column("reason").to_pylist(), every.column("id").to_pylist())
        found = every.take(pa.array(rows, pa.int64()))
    pq.write_table(found, path, compression=COMPRESSION)
