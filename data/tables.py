"""Documents as Arrow tables, and the buffers of a column of texts as the kernels read them."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from data.documents import Document

BATCH_BYTES = 16 << 20

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.large_string()),
        ("domain", pa.string()),
        ("group", pa.string()),
        ("source", pa.string()),
    ]
)


def batches(documents: Iterable[Document], batch_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Record batches of `SCHEMA`, each of one domain and with about `batch_bytes` of strings (one long document may be
    a batch by itself).

    Documents of a domain keep their order. A string never comes near the 32-bit offsets of the short columns, and texts
    have 64-bit offsets.
    """
    rows: dict[str, list[Document]] = {}
    sizes: Counter[str] = Counter()
    for document in documents:
        domain = document.domain
        rows.setdefault(domain, []).append(document)
        sizes[domain] += len(document.text.encode()) + len(document.id) + len(document.group) + len(document.source)
        if sizes[domain] >= batch_bytes:
            yield _batch(rows.pop(domain))
            del sizes[domain]
    for domain in sorted(rows):
        yield _batch(rows[domain])


def _batch(rows: list[Document]) -> pa.RecordBatch:
    columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def text_buffers(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """The values and offsets of a column without nulls, uncopied: uint8[num_bytes], int64[len(texts) + 1]. Offsets are
    absolute."""
    assert texts.type == pa.large_string() and texts.null_count == 0, texts.type
    _, offsets, values = texts.buffers()
    window = (
        np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        if len(texts)
        else np.zeros(1, np.int64)
    )
    return np.frombuffer(values, np.uint8) if values and values.size else np.zeros(0, np.uint8), window
