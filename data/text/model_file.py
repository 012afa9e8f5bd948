"""Files of trained models: named arrays and their settings in one Arrow IPC stream, with checksums. The same content
gives the same bytes, nothing is unpickled, and arrays are mapped, not copied."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.shards.arrow_stream import is_sealed, read_stream, sealed, write_stream

SCHEMA = pa.schema([("name", pa.string()), ("dtype", pa.string()), ("values", pa.large_binary())])


@dataclass(frozen=True, kw_only=True)
class ModelKind:
    """What a file holds. name: how errors name it, as "quality classifier". version: of its content's meaning. arrays:
    the names and dtypes of its arrays. command: what makes a new one."""

    name: str
    version: int
    arrays: Mapping[str, str]
    command: str


def write_model(path: Path, kind: ModelKind, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """settings: what JSON can hold. arrays: flat, of the dtypes of the kind. A reader sees the whole file or none."""
    assert {name: str(array.dtype) for name, array in arrays.items()} == dict(kind.arrays), "other arrays than promised"
    contents = [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    metadata = {
        "format": f"{kind.name} {kind.version}",
        "settings": json.dumps(settings, sort_keys=True, allow_nan=False),
        "arrays_sha256": _digest(contents),
    }
    batch = pa.record_batch([list(arrays), list(kind.arrays.values()), contents], schema=SCHEMA)
    try:
        write_stream(path, SCHEMA.with_metadata(dict(sealed(metadata))), [(batch, {})])
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; choose another place") from None


def read_model(path: Path, kind: ModelKind) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(settings, arrays, which are read-only). Raises InputError if the file is missing, has changed, or is of another
    kind or version."""
    fix = f"give another file, or make one with `{kind.command}`"
    if not path.is_file():
        raise InputError(f"{kind.name} {path}: there is no such file; {fix}")
    try:
        stream = read_stream(path, kind.name)
    except InputError as error:
        raise InputError(f"{kind.name} {path} cannot be read ({error.__cause__}); {fix}") from None
    metadata = stream.metadata
    if metadata.get("format") != f"{kind.name} {kind.version}":
        found = metadata.get("format", "something else")
        raise InputError(f"{path} is no {kind.name} of version {kind.version}, but {found}; {fix}")
    damaged = InputError(f"{kind.name} {path} has changed since it was written; {fix}")
    if not is_sealed(metadata) or len(stream.batches) != 1 or not stream.schema.equals(SCHEMA, check_metadata=False):
        raise damaged
    batch, _ = stream.batches[0]
    try:
        batch.validate(full=True)
        rows = dict(zip(batch["name"].to_pylist(), batch["dtype"].to_pylist(), strict=True))
        contents = [value.as_buffer() for value in batch["values"]]
        if _digest(contents) != metadata.get("arrays_sha256") or rows != dict(kind.arrays):
            raise damaged
        arrays = {
            name: np.frombuffer(content, dtype) for (name, dtype), content in zip(rows.items(), contents, strict=True)
        }
        return json.loads(metadata["settings"]), arrays
    except (pa.ArrowException, ValueError, KeyError, AttributeError) as error:
        raise damaged from error


def _digest(contents: list[Any]) -> str:
    digest = hashlib.sha256()
    for content in contents:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()
