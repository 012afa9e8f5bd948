"""Documents as Arrow tables, and the buffers of a column of texts as the kernels read them."""

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.large_string()),
        ("domain", pa.string()),
        ("group", pa.string()),
        ("source", pa.string()),
    ]
)


def text_buffers(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """The values and offsets of a column without nulls, uncopied: uint8[num_bytes], int64[len(texts) + 1]. Offsets are
    absolute. Both are read-only, whoever owns the memory: one type, for which a kernel is compiled once."""
    assert texts.type == pa.large_string() and texts.null_count == 0, texts.type
    _, offsets, values = texts.buffers()
    window = (
        np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        if len(texts)
        else np.zeros(1, np.int64)
    )
    found = np.frombuffer(values, np.uint8) if values and values.size else np.zeros(0, np.uint8)
    found.flags.writeable = window.flags.writeable = False
    return found, window
