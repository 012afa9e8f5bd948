"""Reading the arrays of a joblib file without running anything that it names.

joblib writes a pickle in which the bytes of each array stand behind its header (joblib.numpy_pickle.NumpyArrayWrapper:
shape, order, dtype, and the alignment of what follows). Here every class of scikit-learn is replaced by an inert record
that only keeps what it was given; of NumPy, only its data types are known. No other name is looked up.
"""

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

MOST_ARRAY_BYTES = 1 << 28


class UnreadableError(ValueError):
    """A file is damaged, or names what no file of a scikit-learn model needs."""


class Inert:
    """What stands for an object: a record of its attributes, whatever its class was."""

    def __init__(self, *given: Any) -> None:
        self.attributes: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        self.attributes = state

    def __getitem__(self, name: str) -> Any:
        if name not in self.attributes:
            raise UnreadableError(f"an object lacks {name}")
        return self.attributes[name]


class _Header(Inert):
    """Of an array whose bytes follow."""

    def read(self, file: io.BytesIO) -> np.ndarray:
        dtype, shape = self["dtype"], self["shape"]
        num_bytes = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or not 0 <= num_bytes <= MOST_ARRAY_BYTES:
            raise UnreadableError(f"an array of {dtype} of shape {shape}")
        if self.attributes.get("numpy_array_alignment_bytes") is not None:
            file.read(file.read(1)[0])
        return np.frombuffer(file.read(num_bytes), dtype).reshape(shape, order="F" if self["order"] == "F" else "C")


def _scalar(dtype: np.dtype, content: bytes) -> Any:
    if dtype.hasobject:
        raise UnreadableError("a scalar that is an object")
    return np.frombuffer(content, dtype)[0]


_KNOWN: dict[tuple[str, str], Any] = {
    ("joblib.numpy_pickle", "NumpyArrayWrapper"): _Header,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): Inert,
    ("numpy", "float64"): Inert,
    ("numpy._core.multiarray", "scalar"): _scalar,
}


_InPython: Any = pickle._Unpickler  # the one in C has no place to read an array's bytes at


class _Unpickler(_InPython):
    dispatch = dict(_InPython.dispatch)

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._file = file

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "sklearn":
            return Inert
        if (module, name) not in _KNOWN:
            raise UnreadableError(f"it names {module}.{name}, which no scikit-learn model needs")
        return _KNOWN[module, name]

    def load_build(self) -> None:
        super().load_build()
        if isinstance(self.stack[-1], _Header):
            self.stack.append(self.stack.pop().read(self._file))

    dispatch[pickle.BUILD[0]] = load_build


def read_inert(path: Path) -> Any:
    """What a file holds: inert records, arrays, and plain values. Raises UnreadableError."""
    try:
        return _Unpickler(io.BytesIO(path.read_bytes())).load()
    except UnreadableError as error:
        raise UnreadableError(f"{path}: {error}") from None
    except Exception as error:  # a damaged pickle may raise anything
        raise UnreadableError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
