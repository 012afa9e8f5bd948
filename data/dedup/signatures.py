"""What is kept of a document for the comparison with all others.

| column | |
|---|---|
| fingerprint | 128 bits of the text with runs of white space as one space |
| num_bytes | int64, bytes of that text |
| num_ngrams | int32, word n-grams, repeated ones included |
| bands | one 64-bit key for each band of MinHash values |
| sketch | the lowest byte of each MinHash value |

A shard of documents is a file of texts and a file of signatures, row by row. Nothing here holds more than one shard.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.dedup.banding import NearDuplicateSettings
from data.reading.tables import text_buffers
from data.shards.mapped_file import open_arrow_file

VERSION = 1  # of all that signatures follow from: words, hashes, MinHash values; raise it with any change of these
TEXT = "text"
FINGERPRINT, NUM_BYTES, NUM_NGRAMS, BANDS, SKETCH = "fingerprint", "num_bytes", "num_ngrams", "bands", "sketch"


@dataclass(frozen=True, kw_only=True)
class DocumentShard:
    """texts: an Arrow IPC file, or a Parquet file by its name, with a column `text`. signatures: an Arrow IPC file of
    what `sign` returns, with one row for each document."""

    texts: Path
    signatures: Path
    num_documents: int


def signature_schema(settings: NearDuplicateSettings) -> pa.Schema:
    """Its metadata tell by which settings and version a file was signed; the threshold may change without new
    signatures."""
    return pa.schema(
        [
            pa.field(FINGERPRINT, pa.binary(16), nullable=False),
            pa.field(NUM_BYTES, pa.int64(), nullable=False),
            pa.field(NUM_NGRAMS, pa.int32(), nullable=False),
            pa.field(BANDS, pa.binary(8 * settings.bands), nullable=False),
            pa.field(SKETCH, pa.binary(settings.num_hashes), nullable=False),
        ],
        metadata={
            "version": str(VERSION),
            "ngram_words": str(settings.ngram_words),
            "bands": str(settings.bands),
            "rows": str(settings.rows),
        },
    )


def sign(texts: pa.LargeStringArray, settings: NearDuplicateSettings) -> pa.RecordBatch:
    """The signatures of a column without nulls, in its order."""
    from data.dedup.signature_kernels import sign_texts

    n = len(texts)
    prints, num_bytes, num_grams = np.empty((n, 2), np.uint64), np.empty(n, np.int64), np.empty(n, np.int32)
    bands, sketches = np.empty((n, settings.bands), np.uint64), np.empty((n, settings.num_hashes), np.uint8)
    out = prints, num_bytes, num_grams, bands, sketches
    if n:
        sign_texts(*text_buffers(texts), settings.ngram_words, settings.rows, *out)
    columns = [_binary(prints), pa.array(num_bytes), pa.array(num_grams), _binary(bands), _binary(sketches)]
    return pa.RecordBatch.from_arrays(columns, schema=signature_schema(settings))


def open_signatures(shard: DocumentShard) -> pa.RecordBatch:
    """The signatures of a shard, memory-mapped (copied if their file has several batches)."""
    table = open_arrow_file(shard.signatures).read_all().combine_chunks()
    assert table.num_rows == shard.num_documents, shard
    return (table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)])[0]


def column_values(signatures: pa.RecordBatch, name: str, dtype: type) -> np.ndarray:
    """A binary column as dtype[n, values of a row], uncopied."""
    column = signatures.column(name)
    width = column.type.byte_width
    if not len(column):
        return np.zeros((0, width // np.dtype(dtype).itemsize), dtype)
    values = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * width : (column.offset + len(column)) * width]
    return values.view(dtype).reshape(len(column), width // np.dtype(dtype).itemsize)


def texts_with(shard: DocumentShard, wanted: np.ndarray) -> Iterator[tuple[int, pa.LargeStringArray]]:
    """The texts of a shard in parts that hold a wanted row, each with its first row. wanted: bool[num_documents].

    An Arrow file is memory-mapped; of a Parquet file, row groups without a wanted row are not read.
    """
    assert len(wanted) == shard.num_documents, shard
    first = 0
    if shard.texts.suffix == ".parquet":
        with pq.ParquetFile(shard.texts) as file:
            assert file.metadata.num_rows == shard.num_documents, shard
            for number in range(file.num_row_groups):
                size = file.metadata.row_group(number).num_rows
                if wanted[first : first + size].any():
                    yield first, _large(file.read_row_group(number, columns=[TEXT]).column(TEXT))
                first += size
    else:
        reader = open_arrow_file(shard.texts)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        assert sum(batch.num_rows for batch in batches) == shard.num_documents, shard
        for batch in batches:
            if wanted[first : first + batch.num_rows].any():
                yield first, _large(batch.column(TEXT))
            first += batch.num_rows


def _large(column: pa.Array | pa.ChunkedArray) -> pa.LargeStringArray:
    column = column if column.type == pa.large_string() else column.cast(pa.large_string())
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _binary(values: np.ndarray) -> pa.FixedSizeBinaryArray:
    width = values.shape[1] * values.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(values)])
