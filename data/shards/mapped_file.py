"""A file as an array, without reading it."""

from pathlib import Path

import numpy as np
import pyarrow as pa


def map_file(path: Path) -> np.ndarray:
    """uint8[size], read-only: a file, mapped. The mapping holds no descriptor and lives as long as the array, also
    if the file is removed. Raises OSError.
    """
    with pa.memory_map(str(path), "r") as file:
        return np.frombuffer(file.read_buffer(file.size()), np.uint8)
