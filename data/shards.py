"""Token shards: Arrow IPC streams in files, one row per document, written whole or not at all, read through a memory
map.

    write_shard(path, header, ids=..., domain="prose", tokens=tokens, offsets=offsets)
    streams = open_streams(folder)          # domain -> TokenStream
    streams["prose"].read(5_000, 1_025)     # across the borders of shards

Columns: id: string, domain: string, tokens: large_list<uint16 | uint32>, each document with its end-of-document token.
The schema's metadata holds the header and a digest of the tokens, so that a shard can be checked by itself. The stream
form of Arrow IPC is the one that `datasets.Dataset.from_file` opens; the file form it does not. A stream has no
footer, so a cut file is known by its missing end marker.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.vocabulary import token_dtype

FORMAT = "longhaul-tokens-1"
SUFFIX = ".arrow"
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # Arrow columnar format, "IPC Streaming Format"


@dataclass(frozen=True, kw_only=True)
class ShardHeader:
    """What a shard's metadata says of its tokens."""

    vocabulary_size: int
    end_id: int
    vocabulary_digest: str

    @property
    def dtype(self) -> np.dtype:
        return token_dtype(self.vocabulary_size)


def shard_name(domain: str, number: int) -> str:
    """`<domain>-<nnnnn>.arrow`"""
    return f"{domain}-{number:05d}{SUFFIX}"


def write_shard(
    path: Path, header: ShardHeader, *, ids: pa.Array, domain: str, tokens: np.ndarray, offsets: np.ndarray
) -> None:
    """Write one shard; the same bytes for the same content. A reader sees the whole file or none, even after a crash.

    ids: string[num_documents]. tokens: uint16|uint32[n] of the header's dtype, offsets: int64[num_documents + 1].
    """
    assert tokens.dtype == header.dtype, f"{tokens.dtype} tokens for a vocabulary of {header.vocabulary_size}"
    assert len(ids) == len(offsets) - 1 and offsets[0] == 0 and offsets[-1] == len(tokens), (
        "offsets do not cover the tokens"
    )
    assert tokens.size == 0 or int(tokens.max()) < header.vocabulary_size, "an id outside the vocabulary"
    metadata = {
        "format": FORMAT,
        "dtype": header.dtype.name,
        "vocabulary_size": str(header.vocabulary_size),
        "end_id": str(header.end_id),
        "vocabulary_digest": header.vocabulary_digest,
        "tokens_digest": _digest(tokens, offsets),
    }
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(tokens))
    domains = pa.array([domain] * len(ids), pa.string())
    batch = pa.record_batch([ids.cast(pa.string()), domains, lists], names=["id", "domain", "tokens"])
    schema = batch.schema.with_metadata(metadata)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            with pa.ipc.new_stream(file, schema) as writer:
                writer.write_batch(batch)
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


class TokenShard:
    """A shard, memory-mapped: nothing is read before it is used."""

    def __init__(self, path: Path, expected: ShardHeader | None = None) -> None:
        """Raises InputError if the file is missing, cut short, no token shard, or (with `expected`) of another
        vocabulary.
        """
        self.path = path
        try:
            mapped = pa.memory_map(str(path), "r")
            if (
                mapped.size() < len(END_OF_STREAM)
                or mapped.read_at(len(END_OF_STREAM), mapped.size() - len(END_OF_STREAM)) != END_OF_STREAM
            ):
                raise pa.ArrowInvalid("no end marker")
            reader = pa.ipc.open_stream(mapped)
            self._batches: list[pa.RecordBatch] = list(reader)
        except FileNotFoundError as error:
            raise InputError(f"token shard {path} is missing; run pretokenize again") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(
                f"token shard {path} cannot be read, it is cut short or no Arrow stream ({error}); delete it and run "
                "pretokenize again"
            ) from error
        metadata = {key.decode(): value.decode() for key, value in (reader.schema.metadata or {}).items()}
        if metadata.get("format") != FORMAT:
            raise InputError(f"{path} is not a token shard of format {FORMAT}; run pretokenize again")
        self.header = ShardHeader(
            vocabulary_size=int(metadata["vocabulary_size"]),
            end_id=int(metadata["end_id"]),
            vocabulary_digest=metadata["vocabulary_digest"],
        )
        self.tokens_digest = metadata["tokens_digest"]
        stored = reader.schema.field("tokens").type
        if (
            stored != pa.large_list(pa.from_numpy_dtype(self.header.dtype))
            or metadata["dtype"] != self.header.dtype.name
        ):
            raise InputError(
                f"token shard {path} holds {stored}, but its {self.header.vocabulary_size} ids need "
                f"{self.header.dtype.name}; run pretokenize again"
            )
        if expected is not None and self.header != expected:
            raise InputError(
                f"token shard {path} was made for {self.header}, not for {expected}; run pretokenize again"
            )

    @property
    def num_tokens(self) -> int:
        return sum(len(segment) for segment in self.segments)

    @cached_property
    def segments(self) -> list[np.ndarray]:
        """The tokens of all documents in order: views of the mapped file, uint16|uint32[n] each."""
        return [_values(batch.column("tokens")) for batch in self._batches]

    @cached_property
    def offsets(self) -> np.ndarray:
        """int64[num_documents + 1] into the shard's tokens."""
        lengths = [np.diff(batch.column("tokens").offsets.to_numpy()) for batch in self._batches]
        return (
            np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
            if lengths
            else np.zeros(1, np.int64)
        )

    def ids(self) -> list[str]:
        """The documents' ids, in order."""
        return [value for batch in self._batches for value in batch.column("id").to_pylist()]

    def read(self) -> np.ndarray:
        """All tokens: uint16|uint32[n]; a view if the shard is of one batch, as ours are."""
        return TokenStream([self]).read(0, self.num_tokens)

    def check(self) -> None:
        """Read every token once. Raises InputError if a byte has changed since the writing, or an id is outside the
        vocabulary.
        """
        tokens = self.read()
        if tokens.size and int(tokens.max()) >= self.header.vocabulary_size:
            raise InputError(
                f"token shard {self.path} holds id {tokens.max()}, outside its vocabulary of "
                f"{self.header.vocabulary_size}; run pretokenize again"
            )
        if _digest(tokens, self.offsets) != self.tokens_digest:
            raise InputError(
                f"token shard {self.path} has changed since it was written; delete it and run pretokenize again"
            )


class TokenStream:
    """The tokens of several shards, one behind the other. Offsets are 64-bit throughout."""

    def __init__(self, shards: Iterable[TokenShard]) -> None:
        shards = list(shards)
        self._segments: list[np.ndarray] = [segment for shard in shards for segment in shard.segments if len(segment)]
        self.dtype = shards[0].header.dtype if shards else np.dtype(np.uint16)
        assert all(shard.header == shards[0].header for shard in shards), (
            "shards of different vocabularies in one stream"
        )
        self._starts = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum([len(s) for s in self._segments], dtype=np.int64)]
        )

    def __len__(self) -> int:
        return int(self._starts[-1])

    def num_sequences(self, sequence_tokens: int) -> int:
        """Whole training sequences: sequence i has inputs [i*S, i*S + S) and targets one further."""
        return max(0, (len(self) - 1) // sequence_tokens)

    def read(self, start: int, count: int) -> np.ndarray:
        """Tokens start to start + count: a view where they stand in one shard, else a copy of just these."""
        end = start + count
        assert start >= 0 and count >= 0 and end <= len(self), f"tokens {start} to {end} of a stream of {len(self)}"
        segment = int(np.searchsorted(self._starts, start, side="right")) - 1
        parts = []
        while start < end:
            offset = start - int(self._starts[segment])
            part = self._segments[segment][offset : offset + end - start]
            parts.append(part)
            start += len(part)
            segment += 1
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)


def open_shards(folder: Path, expected: ShardHeader | None = None) -> dict[str, list[TokenShard]]:
    """The shards of each domain in order. Raises InputError if one cannot be used, or if one of a domain's numbers is
    missing.
    """
    found: dict[str, list[TokenShard]] = {}
    for path in sorted(folder.glob(f"*-[0-9][0-9][0-9][0-9][0-9]{SUFFIX}")):
        domain, _, number = path.name.removesuffix(SUFFIX).rpartition("-")
        shards = found.setdefault(domain, [])
        if int(number) != len(shards):
            raise InputError(
                f"token shard {folder / shard_name(domain, len(shards))} is missing; run pretokenize again"
            )
        shards.append(TokenShard(path, expected))
    return found


def open_streams(folder: Path, expected: ShardHeader | None = None) -> dict[str, TokenStream]:
    """Domain -> its tokens. Raises InputError as `open_shards`."""
    return {domain: TokenStream(shards) for domain, shards in open_shards(folder, expected).items()}


def _values(lists: pa.LargeListArray) -> np.ndarray:
    """The list's values, without a copy."""
    offsets = lists.offsets
    return lists.values.to_numpy(zero_copy_only=True)[offsets[0].as_py() : offsets[-1].as_py()]


def _digest(tokens: np.ndarray, offsets: Sequence[int] | np.ndarray) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(tokens).data)
    digest.update(np.ascontiguousarray(offsets, dtype=np.int64).data)
    return digest.hexdigest()
