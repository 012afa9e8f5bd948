"""The tables of curation: documents as they are passed on, what was dropped, and the tally of every record's fate."""

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

from data.reading.tables import SCHEMA

DOCUMENTS = pa.schema([*SCHEMA, ("language", pa.string())])

DROPPED = pa.schema(
    [
        ("id", pa.string()),
        ("domain", pa.string()),
        ("source", pa.string()),
        ("language", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("score", pa.float64()),
        ("survivor", pa.string()),
        ("num_bytes", pa.int64()),
    ]
)
SAMPLES = pa.schema([*DROPPED, ("excerpt", pa.string())])

ROWS = pa.schema(
    [
        ("num_bytes", pa.int64()),
        ("quality", pa.float64()),
        ("id_hash", pa.uint64()),
        ("group_hash", pa.uint64()),
    ]
)

TALLY = pa.schema(
    [
        ("source_number", pa.int32()),
        ("source", pa.string()),
        ("domain", pa.string()),
        ("language", pa.string()),
        ("step", pa.int8()),
        ("outcome", pa.string()),
        ("documents", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
ACCOUNTING = pa.schema([TALLY.field(name) for name in ("source", "domain", "outcome", "documents", "bytes")])

COMPRESSION = "zstd"
TABLES_TOGETHER = 512


def few_at_a_time(tables: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    """The tables in lists of TABLES_TOGETHER at most, so that memory and the number of mapped files do not grow with
    the number of shards."""
    following = iter(tables)
    while some := list(islice(following, TABLES_TOGETHER)):
        yield some
