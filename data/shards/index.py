"""The index of a folder of token shards, index.arrow: where each record batch's tokens stand, so that a reader opens
ten thousand shards without touching one of them, and can fetch the tokens of one batch by a ranged read.

    write_index(folder, header, [entry for shard in shards for entry in shard.entries()])
    index = read_index(folder)
    for domain, rows in index.domains().items():
        index.num_tokens[rows].sum()

One row for each record batch that holds documents, sorted by domain, shard and batch. It is written last: a folder
without an index is not finished. Checksums cover its header and its rows.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.shards.arrow_stream import is_sealed, read_stream, sealed, write_stream
from data.shards.files import BatchEntry, ShardHeader

FORMAT = "longhaul-index-2"
FILE = "index.arrow"
SCHEMA = pa.schema(
    [
        ("domain", pa.string()),
        ("shard", pa.string()),
        ("shard_bytes", pa.int64()),
        ("num_documents", pa.int64()),
        ("num_tokens", pa.int64()),
        ("tokens_offset", pa.int64()),
        ("tokens_sha256", pa.binary(32)),
        ("offsets_offset", pa.int64()),
        ("offsets_sha256", pa.binary(32)),
    ]
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardIndex:
    """The rows of an index, column by column; what they mean is said at `BatchEntry`. Numbers: int64[num_batches]."""

    header: ShardHeader
    domain: list[str]
    shard: list[str]
    shard_bytes: np.ndarray
    num_documents: np.ndarray
    num_tokens: np.ndarray
    tokens_offset: np.ndarray
    tokens_sha256: list[bytes]
    offsets_offset: np.ndarray
    offsets_sha256: list[bytes]

    def __len__(self) -> int:
        return len(self.domain)

    def domains(self) -> dict[str, slice]:
        """Domain -> its rows, which stand together. A domain without a document is not there."""
        found, start = {}, 0
        for domain, rows in groupby(self.domain):
            end = start + sum(1 for _ in rows)
            found[domain] = slice(start, end)
            start = end
        return found


def write_index(folder: Path, header: ShardHeader, entries: Sequence[BatchEntry]) -> None:
    """Write `folder`/index.arrow, whole or not at all. entries: in any order of shards, each shard's in the order of
    its batches; those without documents are left out.
    """
    # The length first: a domain's shard 100,000 has one digit more than the ones before it.
    rows = sorted(
        (entry for entry in entries if entry.num_documents),
        key=lambda entry: (entry.domain, len(entry.shard), entry.shard),
    )
    for entry in rows:
        tokens_end = entry.tokens_offset + entry.num_tokens * header.dtype.itemsize
        offsets_end = entry.offsets_offset + (entry.num_documents + 1) * 8
        assert min(entry.tokens_offset, entry.offsets_offset) > 0, f"{entry} begins before its file"
        assert max(tokens_end, offsets_end) <= entry.shard_bytes, f"{entry} ends behind its file"
    columns = [pa.array([getattr(entry, field.name) for entry in rows], field.type) for field in SCHEMA]
    batch = pa.record_batch(columns, SCHEMA)
    metadata = sealed({"format": FORMAT, **header.metadata(), "rows_sha256": _digest(batch)})
    write_stream(folder / FILE, SCHEMA.with_metadata(dict(metadata)), [(batch, {})])


def read_index(folder: Path, expected: ShardHeader | None = None) -> ShardIndex:
    """Read `folder`/index.arrow. Raises InputError if it is missing, damaged, or (with `expected`) of another
    vocabulary.
    """
    path = folder / FILE
    stream = read_stream(path, "index of the token shards")
    if stream.metadata.get("format") != FORMAT:
        raise InputError(f"{path} is not an index of format {FORMAT}; run pretokenize again")
    try:
        if not is_sealed(stream.metadata):
            raise ValueError("its checksum does not fit its header")
        header = ShardHeader.parse(stream.metadata)
        if not stream.schema.equals(SCHEMA, check_metadata=False) or len(stream.batches) != 1:
            raise ValueError(f"columns {stream.schema.names} in {len(stream.batches)} record batches")
        batch = stream.batches[0][0]
        batch.validate(full=True)
        if _digest(batch) != stream.metadata.get("rows_sha256"):
            raise ValueError("its checksum does not fit its rows")
    except (ValueError, pa.ArrowException) as error:
        raise InputError(
            f"index {path} has changed since it was written ({error}); delete it and run pretokenize again"
        ) from error
    if expected is not None and header != expected:
        raise InputError(f"index {path} was made for {header}, not for {expected}; run pretokenize again")
    columns: dict[str, Any] = {
        field.name: whole_numbers(column) if field.type == pa.int64() else column.to_pylist()
        for field, column in zip(batch.schema, batch.columns, strict=True)
    }
    return ShardIndex(header=header, **columns)


def whole_numbers(column: pa.Array) -> np.ndarray:
    """int64[n] of a column without nulls, not copied. `to_numpy` would import pandas where that is installed, which
    takes every process half a second."""
    values = column.buffers()[1]
    return np.frombuffer(values, np.int64, len(column), 8 * column.offset) if len(column) else np.zeros(0, np.int64)


def _digest(batch: pa.RecordBatch) -> str:
    """sha256 of the columns' values."""
    digest = hashlib.sha256()
    for column in batch.columns:
        if column.type == pa.int64():
            digest.update(whole_numbers(column).data)
        else:
            values = column.cast(pa.binary()).to_pylist()
            digest.update(np.fromiter(map(len, values), np.int64, len(values)).data)
            digest.update(b"".join(values))
    return digest.hexdigest()
