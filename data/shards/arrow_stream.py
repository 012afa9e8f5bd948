"""Arrow IPC streams in files: written whole or not at all, read through a memory map, and a cut one is noticed.

The stream form of Arrow IPC is the one that `datasets.Dataset.from_file` opens; the file form it does not. A stream has
no footer, so a cut file is known by its missing end marker.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from data.errors import InputError

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # Arrow columnar format, "IPC Streaming Format"

Metadata = Mapping[str, str]
SEAL = "metadata_sha256"


@dataclass(frozen=True, kw_only=True)
class ArrowStream:
    """A mapped file: its schema, and its record batches with the metadata of each. Buffers lie inside `mapped`, so a
    buffer's place in the file is its address less `mapped.address`.
    """

    mapped: pa.Buffer
    schema: pa.Schema
    batches: tuple[tuple[pa.RecordBatch, Metadata], ...]

    @property
    def metadata(self) -> Metadata:
        return _text(self.schema.metadata)


def sealed(metadata: Metadata) -> Metadata:
    """The metadata of a schema, and a checksum of it."""
    return {**metadata, SEAL: _digest(metadata)}


def is_sealed(metadata: Metadata) -> bool:
    """Whether metadata is as `sealed` made it."""
    return metadata.get(SEAL) == _digest({key: value for key, value in metadata.items() if key != SEAL})


def _digest(metadata: Metadata) -> str:
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


def write_stream(path: Path, schema: pa.Schema, batches: Iterable[tuple[pa.RecordBatch, Metadata]]) -> None:
    """The same bytes for the same content. A reader sees the whole file or none, even after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for batch, metadata in batches:
                    writer.write_batch(batch, custom_metadata=dict(metadata))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_stream(path: Path, what: str) -> ArrowStream:
    """Map a file. what: how errors name it, as "token shard". Raises InputError if it is missing, cut short or no Arrow
    stream.
    """
    try:
        file = pa.memory_map(str(path), "r")
        mapped = file.read_buffer(file.size())
        if mapped.size < len(END_OF_STREAM) or mapped[-len(END_OF_STREAM) :].to_pybytes() != END_OF_STREAM:
            raise pa.ArrowInvalid("no end marker")
        reader = pa.ipc.open_stream(pa.BufferReader(mapped))
        batches = []
        while (found := _next(reader)) is not None:
            found.batch.validate()
            batches.append((found.batch, _text(found.custom_metadata)))
        return ArrowStream(mapped=mapped, schema=reader.schema, batches=tuple(batches))
    except FileNotFoundError as error:
        raise InputError(f"{what} {path} is missing; run pretokenize again") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{what} {path} cannot be read, it is cut short or no Arrow stream ({error}); delete it and run "
            "pretokenize again"
        ) from error


def _next(reader: pa.RecordBatchStreamReader) -> "pa.RecordBatchWithMetadata | None":
    try:
        return reader.read_next_batch_with_custom_metadata()
    except StopIteration:
        return None


def _text(metadata: Mapping[bytes, bytes] | None) -> Metadata:
    """What is no UTF-8, as a changed byte makes it, becomes U+FFFD and so is not what a reader looks for."""
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in (metadata or {}).items()}
