"""The record of what was dropped: every document with its reason, and a few of each reason to look at.

dropped.parquet lists all; samples.parquet holds for each reason the NUM_SAMPLES documents with the smallest hash of
(reason, id), with the beginning of their text, so that the choice is fair and the same for any order of work.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data.text.keys import hash_keys
from stages.curate.tables import COMPRESSION, DROPPED, SAMPLES, few_at_a_time

NUM_SAMPLES = 20
EXCERPT_CHARACTERS = 300
ROW_GROUP_ROWS = 1 << 17


def sample(dropped: pa.Table, texts: pa.LargeStringArray | None = None, rows: np.ndarray | None = None) -> pa.Table:
    """The samples among dropped documents. texts: None for records that were never a text. rows: int64, where among
    the texts those of the dropped documents are."""
    chosen = chosen_rows(dropped)
    places = chosen if rows is None else rows[chosen]
    whole = [""] * len(chosen) if texts is None else [texts[at].as_py() for at in places.tolist()]
    excerpts = pa.array([text[:EXCERPT_CHARACTERS] for text in whole], pa.string())
    return dropped.take(pa.array(chosen)).append_column(SAMPLES.field("excerpt"), excerpts)


def chosen_rows(dropped: pa.Table) -> np.ndarray:
    """int64: the rows to show, by reason and then by hash."""
    reasons, ids = (dropped.column(name).combine_chunks() for name in ("reason", "id"))
    if not len(ids):
        return np.zeros(0, np.int64)
    by_hash = np.argsort(hashes(reasons, ids), kind="stable")
    known = pc.array_sort_indices(names := reasons.dictionary_encode().dictionary)
    place = pc.index_in(reasons, names.take(known)).to_numpy()
    order = by_hash[np.argsort(place[by_hash], kind="stable")]
    first = np.searchsorted(place[order], np.arange(len(names)))
    return order[np.arange(len(order)) - first[place[order]] < NUM_SAMPLES]


def hashes(reasons: pa.StringArray, ids: pa.StringArray) -> np.ndarray:
    """uint64[n]: what decides whether a document is shown."""
    return hash_keys(pc.binary_join_element_wise(reasons, ids, "\0"))


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
        found = every.take(pa.array(chosen_rows(every)))
    pq.write_table(found, path, compression=COMPRESSION)
