"""Short strings (names of documents and groups) as 64-bit numbers, so that millions of them can be compared and sorted
without a Python object for each. Among 100 million different strings two share a number with a probability of
0.0003."""

import numpy as np
import pyarrow as pa


def hash_keys(strings: pa.StringArray) -> np.ndarray:
    """uint64[n] of a column without nulls."""
    from data.text.key_kernels import hash_strings

    assert strings.type == pa.string() and strings.null_count == 0, strings.type
    _, offsets, values = strings.buffers()
    out = np.empty(len(strings), np.uint64)
    if len(strings):
        window = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
        content = np.frombuffer(values, np.uint8) if values and values.size else np.zeros(0, np.uint8)
        hash_strings(content, window, out)
    return out
