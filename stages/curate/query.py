"""What became of documents that a corpus does not hold: questions to its dropped.parquet.

query = Query(reason="quality", language="en")
counts(corpus, query)                   # reason -> documents and bytes
next(batches(corpus, query))            # the rows, `stages.curate.tables.DROPPED`, a batch at a time
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import InputError
from stages.curate.artifact import SPLITS, domain_paths
from stages.out_file import whole
from stages.store import Artifact

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

DROPPED_FILE, SAMPLES_FILE = "dropped.parquet", "samples.parquet"
FORMATS = (".parquet", ".jsonl")


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which rows; empty: any. reason: how it begins, as "quality" does for all quality rules."""

    reason: str = ""
    domain: str = ""
    language: str = ""
    source: str = ""
    id: str = ""

    def filter(self) -> "ds.Expression | None":
        import pyarrow.compute as pc

        found = None
        for name in ("reason", "domain", "language", "source", "id"):
            value = getattr(self, name)
            if value:
                column = pc.field(name)
                holds = pc.starts_with(column, pattern=value) if name == "reason" else column == value
                found = holds if found is None else found & holds
        return found


def require_corpus(artifact: Artifact) -> None:
    """Raises InputError for an artifact that is no curated corpus."""
    if artifact.stage != "curate":
        raise InputError(
            f"{artifact.path.name} is of {artifact.stage}; only a corpus, of curate, has dropped documents"
        )


def batches(corpus: Artifact, query: Query, columns: list[str] | None = None) -> "Iterator[pa.RecordBatch]":
    """The rows that a query asks for, in the order of the file; one batch is in memory at a time."""
    import pyarrow.dataset as ds

    rows = ds.dataset(corpus.path / DROPPED_FILE, format="parquet")
    for batch in rows.to_batches(columns=columns, filter=query.filter()):
        if batch.num_rows:
            yield batch


def counts(corpus: Artifact, query: Query) -> dict[str, tuple[int, int]]:
    """Reason -> documents and bytes, the reason with most documents first."""
    import pyarrow as pa

    found: dict[str, list[int]] = {}
    for batch in batches(corpus, query, ["reason", "num_bytes"]):
        sums = pa.table(batch).group_by("reason").aggregate([("num_bytes", "count"), ("num_bytes", "sum")])
        for row in sums.to_pylist():
            entry = found.setdefault(row["reason"], [0, 0])
            entry[0] += row["num_bytes_count"]
            entry[1] += row["num_bytes_sum"]
    ordered = sorted(found.items(), key=lambda entry: (-entry[1][0], entry[0]))
    return {reason: (documents, num_bytes) for reason, (documents, num_bytes) in ordered}


def first(corpus: Artifact, query: Query, most: int) -> list[dict[str, Any]]:
    """The first rows, at most so many."""
    found: list[dict[str, Any]] = []
    for batch in batches(corpus, query):
        found += batch.slice(0, most - len(found)).to_pylist()
        if len(found) >= most:
            break
    return found


def excerpts(corpus: Artifact, id: str) -> list[str]:
    """How dropped documents of this name begin, if they are among the samples."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found = pq.read_table(corpus.path / SAMPLES_FILE, columns=["excerpt"], filters=pc.field("id") == id)
    return [text for text in found["excerpt"].to_pylist() if text]


def kept(corpus: Artifact, id: str) -> list[tuple[str, str]]:
    """(side, domain) of the documents of this name that the corpus holds."""
    import pyarrow.dataset as ds

    found = []
    for side in SPLITS:
        for domain, paths in domain_paths(corpus.path, side).items():
            rows = ds.dataset([str(path) for path in paths], format="parquet")
            if rows.count_rows(filter=ds.field("id") == id):
                found.append((side, domain))
    return found


def require_some(corpus: Artifact, query: Query) -> None:
    """Raises InputError for a value that no dropped document has, with those that there are."""
    for name in ("reason", "domain", "language", "source"):
        value = getattr(query, name)
        if value and not any(True for _ in batches(corpus, Query(**{name: value}), [name])):
            there = sorted(
                {text for batch in batches(corpus, Query(), [name]) for text in batch[name].unique().to_pylist()}
            )
            told = ", ".join(repr(text) for text in there[:50]) + (", ..." if len(there) > 50 else "") or "none"
            raise InputError(f"no dropped document has the {name} {value!r}; there are {told}")


def check_format(path: Path) -> None:
    """Raises InputError for a file of another kind than `write` writes."""
    if path.suffix not in FORMATS:
        raise InputError(f"--out {path}: name a file that ends in {' or '.join(FORMATS)}")


def write(corpus: Artifact, query: Query, path: Path) -> int:
    """Put the rows that a query asks for into a .parquet or .jsonl file, whole or not at all. Returns how many there
    are. Raises TryAgain if the disk is full."""
    import pyarrow.parquet as pq

    from stages.curate.tables import COMPRESSION, DROPPED

    written = 0
    with whole(path) as temporary:
        if path.suffix == ".parquet":
            with pq.ParquetWriter(temporary, DROPPED, compression=COMPRESSION) as writer:
                for batch in batches(corpus, query):
                    writer.write_batch(batch)
                    written += batch.num_rows
        else:
            with open(temporary, "w", encoding="utf-8") as file:
                for batch in batches(corpus, query):
                    for row in batch.to_pylist():
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    written += batch.num_rows
    return written
