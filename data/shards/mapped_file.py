"""A file as an array or as Arrow columns, without reading it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc


def map_file(path: Path) -> np.ndarray:
    """uint8[size], read-only: a file, mapped. The mapping holds no descriptor and lives as long as the array, also
    if the file is removed. Raises OSError.
    """
    return np.frombuffer(_mapped(path), np.uint8)


def open_arrow_file(path: Path) -> pa.RecordBatchFileReader:
    """An Arrow IPC file, mapped likewise. Raises OSError and pa.ArrowException."""
    # Given a file instead of a buffer, Arrow has another thread read the footer, which takes twenty times as long.
    return pa.ipc.open_file(_mapped(path))


def _mapped(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path), "r") as file:
        return file.read_buffer(file.size())
