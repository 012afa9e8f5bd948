"""Token shards: Arrow IPC streams in files, one row per document, written whole or not at all, read through a memory
map.

    write_shard(path, header, ids=..., domain="prose", tokens=tokens, offsets=offsets)
    shard = TokenShard(path, header)
    shard.read()[shard.offsets[7] : shard.offsets[8]]      # document 7

Columns: id: string, domain: dictionary<string>, tokens: large_list<uint16 | uint32>, each document with its
end-of-document token. The schema's metadata holds the header and its sha256, that of each record batch the sha256 of
its tokens, of their offsets and of its ids, so that a shard can be checked by itself, and one batch alone.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.shards.arrow_stream import Metadata, is_sealed, read_stream, sealed, write_stream
from data.vocabulary.vocabulary import token_dtype

FORMAT = "longhaul-tokens-3"
SUFFIX = ".arrow"
BATCH_TOKENS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ShardHeader:
    """What a shard's metadata says of its tokens. vocabulary_size: ids that there are; padded_vocabulary_size: rows of
    the model's matrices, which decide the type, so that tokens and what a model says of them have one.
    """

    vocabulary_size: int
    padded_vocabulary_size: int
    end_id: int
    vocabulary_digest: str

    @property
    def dtype(self) -> np.dtype:
        """uint16 or uint32."""
        return token_dtype(self.padded_vocabulary_size)

    def metadata(self) -> dict[str, str]:
        """The header as the metadata of an Arrow schema."""
        return {
            "dtype": self.dtype.name,
            "vocabulary_size": str(self.vocabulary_size),
            "padded_vocabulary_size": str(self.padded_vocabulary_size),
            "end_id": str(self.end_id),
            "vocabulary_digest": self.vocabulary_digest,
        }

    @classmethod
    def parse(cls, metadata: Mapping[str, str]) -> "ShardHeader":
        """The header in the metadata of an Arrow schema. Raises ValueError if it is none."""
        try:
            header = cls(
                vocabulary_size=int(metadata["vocabulary_size"]),
                padded_vocabulary_size=int(metadata["padded_vocabulary_size"]),
                end_id=int(metadata["end_id"]),
                vocabulary_digest=metadata["vocabulary_digest"],
            )
            consistent = 0 <= header.end_id < header.vocabulary_size <= header.padded_vocabulary_size
            if not consistent or metadata["dtype"] != header.dtype.name:
                raise ValueError(f"{header} cannot have {metadata['dtype']} tokens")
        except KeyError as error:
            raise ValueError(f"its header has no {error}") from error
        return header


@dataclass(frozen=True, kw_only=True)
class BatchEntry:
    """Where a record batch's numbers stand in its file.

    tokens: num_tokens numbers of the header's dtype at byte tokens_offset. offsets: int64[num_documents + 1] at byte
    offsets_offset, counted from the batch's first token. shard: the file's name. Both sha256 are of the bytes there.
    """

    domain: str
    shard: str
    shard_bytes: int
    num_documents: int
    num_tokens: int
    tokens_offset: int
    tokens_sha256: bytes
    offsets_offset: int
    offsets_sha256: bytes


def shard_name(domain: str, number: int) -> str:
    """`<domain>-<nnnnn>.arrow`"""
    return f"{domain}-{number:05d}{SUFFIX}"


def write_shard(
    path: Path,
    header: ShardHeader,
    *,
    ids: pa.Array,
    domain: str,
    tokens: np.ndarray,
    offsets: np.ndarray,
    batch_tokens: int = BATCH_TOKENS,
) -> None:
    """Write one shard; the same bytes for the same content. A reader sees the whole file or none, even after a crash.

    ids: string[num_documents]. tokens: uint16|uint32[n] of the header's dtype, offsets: int64[num_documents + 1].
    batch_tokens: most tokens of a record batch; a longer document has one of its own.
    """
    assert tokens.dtype == header.dtype, f"{tokens.dtype} tokens for a vocabulary of {header.vocabulary_size}"
    assert len(ids) == len(offsets) - 1 and offsets[0] == 0 and offsets[-1] == len(tokens), (
        "offsets do not cover the tokens"
    )
    assert (np.diff(offsets) > 0).all(), "a document without a token, not even its end"
    assert tokens.size == 0 or int(tokens.max()) < header.vocabulary_size, "an id outside the vocabulary"
    ids, name = ids.cast(pa.string()), pa.array([domain], pa.string())

    def batches() -> Iterator[tuple[pa.RecordBatch, Metadata]]:
        for first, end in _batch_ranges(offsets, batch_tokens):
            part = np.ascontiguousarray(tokens[offsets[first] : offsets[end]])
            places = np.asarray(offsets[first : end + 1] - offsets[first], np.int64)
            lists = pa.LargeListArray.from_arrays(pa.array(places), pa.array(part))
            domains = pa.DictionaryArray.from_arrays(pa.array(np.zeros(end - first, np.int8)), name)
            batch = pa.record_batch([ids.slice(first, end - first), domains, lists], schema)
            yield batch, {"tokens_sha256": _sha256(part), "offsets_sha256": _sha256(places), "ids_sha256": _ids(batch)}

    metadata = {"format": FORMAT, **header.metadata(), "domain": domain, "num_documents": str(len(ids))}
    schema = _schema(header).with_metadata(dict(sealed(metadata)))
    write_stream(path, schema, batches())


class TokenShard:
    """A shard, memory-mapped: nothing is read before it is used."""

    def __init__(self, path: Path, expected: ShardHeader | None = None) -> None:
        """Raises InputError if the file is missing, cut short, no token shard, if its header has changed, or (with
        `expected`) is of another vocabulary.
        """
        self.path = path
        self._stream = read_stream(path, "token shard")
        metadata = self._stream.metadata
        if metadata.get("format") != FORMAT:
            raise InputError(f"{path} is not a token shard of format {FORMAT}; run pretokenize again")
        if not is_sealed(metadata):
            raise self._changed("its checksum does not fit its header")
        try:
            self.header = ShardHeader.parse(metadata)
            self.domain: str = metadata["domain"]
        except (KeyError, ValueError) as error:
            raise self._changed(str(error)) from error
        num_documents = sum(batch.num_rows for batch, _ in self._stream.batches)
        if not self._stream.batches or metadata.get("num_documents") != str(num_documents):
            raise self._changed(f"it holds {num_documents} of {metadata.get('num_documents')} documents")
        if not self._stream.schema.equals(_schema(self.header), check_metadata=False):
            stored = ", ".join(map(str, self._stream.schema.types))
            raise InputError(
                f"token shard {path} holds {stored}, but its {self.header.padded_vocabulary_size} ids need "
                f"{_schema(self.header).field('tokens').type}; run pretokenize again"
            )
        if expected is not None and self.header != expected:
            raise InputError(
                f"token shard {path} was made for {self.header}, not for {expected}; run pretokenize again"
            )

    @property
    def num_tokens(self) -> int:
        return sum(len(tokens) for tokens in self.batches)

    @cached_property
    def batches(self) -> list[np.ndarray]:
        """The tokens of each record batch: views of the mapped file, uint16|uint32[n] each."""
        return [batch.column("tokens").values.to_numpy() for batch, _ in self._stream.batches]

    @cached_property
    def offsets(self) -> np.ndarray:
        """int64[num_documents + 1] into the shard's tokens."""
        lengths = [np.diff(batch.column("tokens").offsets.to_numpy()) for batch, _ in self._stream.batches]
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths), dtype=np.int64)])

    def ids(self) -> list[str]:
        """The documents' ids, in order."""
        return [value for batch, _ in self._stream.batches for value in batch.column("id").to_pylist()]

    def read(self) -> np.ndarray:
        """All tokens: uint16|uint32[n]; a view if the shard is of one record batch."""
        return self.batches[0] if len(self.batches) == 1 else np.concatenate(self.batches)

    def entries(self) -> list[BatchEntry]:
        """What the index says of each record batch, as the file has it; nothing is checked."""
        return [
            BatchEntry(
                domain=self.domain,
                shard=self.path.name,
                shard_bytes=self._stream.mapped.size,
                num_documents=batch.num_rows,
                num_tokens=len(tokens),
                tokens_offset=self._place(tokens),
                tokens_sha256=bytes.fromhex(metadata["tokens_sha256"]),
                offsets_offset=self._place(batch.column("tokens").offsets.to_numpy()),
                offsets_sha256=bytes.fromhex(metadata["offsets_sha256"]),
            )
            for (batch, metadata), tokens in zip(self._stream.batches, self.batches, strict=True)
        ]

    def check(self) -> None:
        """Read every byte of the content once. Raises InputError if one has changed since the writing, or an id is
        outside the vocabulary, and names the record batch.
        """
        for number, ((batch, metadata), tokens) in enumerate(zip(self._stream.batches, self.batches, strict=True)):
            if tokens.size and int(tokens.max()) >= self.header.vocabulary_size:
                raise InputError(
                    f"token shard {self.path} holds id {tokens.max()} in record batch {number}, outside its vocabulary "
                    f"of {self.header.vocabulary_size}; run pretokenize again"
                )
            try:
                batch.validate(full=True)
            except pa.ArrowException as error:
                raise self._changed(f"record batch {number}: {error}") from error
            found = {
                "tokens_sha256": _sha256(tokens),
                "offsets_sha256": _sha256(batch.column("tokens").offsets.to_numpy()),
                "ids_sha256": _ids(batch),
            }
            wrong = [name.removesuffix("_sha256") for name, digest in found.items() if metadata.get(name) != digest]
            if set(batch.column("domain").to_pylist()) - {self.domain}:
                wrong.append("domain")
            if wrong:
                raise self._changed(f"record batch {number}: {', '.join(wrong)}")

    def _changed(self, what: str) -> InputError:
        return InputError(
            f"token shard {self.path} has changed since it was written ({what}); delete it and run pretokenize again"
        )

    def _place(self, numbers: np.ndarray) -> int:
        """The byte of the file at which a view of it begins."""
        return int(numbers.ctypes.data) - self._stream.mapped.address


def _schema(header: ShardHeader) -> pa.Schema:
    return pa.schema(
        [
            ("id", pa.string()),
            ("domain", pa.dictionary(pa.int8(), pa.string())),
            ("tokens", pa.large_list(pa.from_numpy_dtype(header.dtype))),
        ]
    )


def _batch_ranges(offsets: np.ndarray, batch_tokens: int) -> Iterator[tuple[int, int]]:
    """First document and end of each record batch. There is always one, which may be empty: a stream without a record
    batch is one that `datasets` does not open.
    """
    first, num_documents = 0, len(offsets) - 1
    while first < num_documents or first == 0:
        end = int(np.searchsorted(offsets, offsets[first] + batch_tokens, side="right")) - 1
        end = min(max(end, first + 1), num_documents)
        yield first, end
        if end == num_documents:
            return
        first = end


def _sha256(numbers: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(numbers).data).hexdigest()


def _ids(batch: pa.RecordBatch) -> str:
    """sha256 of the ids' lengths in bytes and of the ids behind one another."""
    import pyarrow.compute as pc

    column = batch.column("id")
    digest = hashlib.sha256(pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64).data)
    digest.update("".join(column.to_pylist()).encode())
    return digest.hexdigest()
