"""Reading the arrays of a joblib file without running anything that it names.

joblib writes a pickle in which the bytes of each array stand behind its header (joblib.numpy_pickle.NumpyArrayWrapper:
shape, order, dtype, and the alignment of what follows). Whatever a file names becomes an inert record that keeps what
it was given, and only what a scikit-learn model needs may be named. Data types are records too, of which those of plain
numbers are looked up in a table: NumPy's own would take a state out of the file, by which bytes pass for the addresses
of objects.
"""

import io
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

MOST_ARRAY_BYTES = 1 << 28
NUMBERS = re.compile(r"b1|[iu][1248]|f[248]")


class UnreadableError(ValueError):
    """A file is damaged, or names what no file of a scikit-learn model needs."""


class Inert:
    """What stands for an object: a record of its attributes, whatever its class was."""

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.attributes: Any = {}

    def __setstate__(self, state: Any) -> None:
        self.attributes = state

    def __getitem__(self, name: str) -> Any:
        if name not in self.attributes:
            raise UnreadableError(f"an object lacks {name}")
        return self.attributes[name]


class _DataType(Inert):
    """Of an array or a number: `numpy.dtype` is given a code, its state is (version, byte order, ...)."""

    def look_up(self) -> np.dtype:
        """That of a plain number. Raises UnreadableError for another one."""
        code = self.given[0] if self.given else None
        order = self.attributes[1] if self.attributes else "|"
        if not isinstance(code, str) or not NUMBERS.fullmatch(code) or order not in ("<", ">", "|"):
            raise UnreadableError("an array of something else than numbers")
        return np.dtype(order + code)


class _Header(Inert):
    """Of an array whose bytes follow."""

    def read(self, file: io.BytesIO) -> np.ndarray:
        dtype, shape = _data_type(self["dtype"]), self["shape"]
        if not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
            raise UnreadableError("an array without a shape")
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes > MOST_ARRAY_BYTES:
            raise UnreadableError(f"an array of {num_bytes} bytes")
        if self.attributes.get("numpy_array_alignment_bytes") is not None:
            file.read(file.read(1)[0])
        return np.frombuffer(file.read(num_bytes), dtype).reshape(shape, order="F" if self["order"] == "F" else "C")


class _Number(Inert):
    """Of one number: `numpy._core.multiarray.scalar` is given its data type and its bytes."""

    def read(self) -> Any:
        dtype, content = self.given
        if type(content) is not bytes:
            raise UnreadableError("a number without bytes")
        return np.frombuffer(content, _data_type(dtype), count=1)[0]


def _data_type(record: Any) -> np.dtype:
    if not isinstance(record, _DataType):
        raise UnreadableError("an array without a data type")
    return record.look_up()


_KNOWN: dict[tuple[str, str], type[Inert]] = {
    ("joblib.numpy_pickle", "NumpyArrayWrapper"): _Header,
    ("numpy", "dtype"): _DataType,
    ("numpy", "ndarray"): Inert,
    ("numpy", "float64"): Inert,
    ("numpy._core.multiarray", "scalar"): _Number,
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

    def load_reduce(self) -> None:
        super().load_reduce()
        if isinstance(self.stack[-1], _Number):
            self.stack[-1] = self.stack[-1].read()

    def load_build(self) -> None:
        if not isinstance(self.stack[-2], Inert):  # of anything else it would set attributes
            raise UnreadableError("a state of something that has none")
        super().load_build()
        if isinstance(self.stack[-1], _Header):
            self.stack[-1] = self.stack[-1].read(self._file)

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build


def read_inert(path: Path) -> Any:
    """What a file holds: inert records, arrays, and plain values. Raises UnreadableError."""
    try:
        return _Unpickler(io.BytesIO(path.read_bytes())).load()
    except UnreadableError as error:
        raise UnreadableError(f"{path}: {error}") from None
    except Exception as error:  # a damaged pickle may raise anything
        raise UnreadableError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
