"""The tokens of a domain as one stream, read at any place out of its shards.

    streams = open_streams(folder)              # domain -> TokenStream, from the index alone
    streams["prose"].read(5_000, 1_025)         # across the borders of documents and shards
    largest = streams["prose"].fill(pieces, inputs, targets, positions, isolate=True)

A stream is all documents of a domain behind one another, each its tokens and one end-of-document token. Its blocks are
the record batches of the shards; a block is opened, and its checksum compared, when it is first read, by a
`ShardFiles`: files of this machine are mapped (`LocalShards`), others go through a cache
(`data.shards.remote.RemoteShards`).
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np

from data.errors import InputError
from data.order.gather import NOT_OPEN, fill_rows, touched_blocks
from data.order.packing import Pieces
from data.shards.files import ShardHeader, TokenShard
from data.shards.index import ShardIndex, read_index
from data.shards.mapped_file import map_file

MAPPED_SHARDS = 16_384  # most that are kept mapped; Linux allows a process 65,530 mappings by default
BLOCKS_AT_ONCE = 1_024  # most that are opened at once to read document lengths


@dataclass(frozen=True, kw_only=True)
class Block:
    """A range of bytes of a shard. sha256: of its content, 32 bytes."""

    shard: str
    offset: int
    size: int
    sha256: bytes


class ShardFiles(Protocol):
    """Where the shards of a folder lie. Used from several threads at once.

    stays: whether what was opened may be kept for good; otherwise it is asked for again at each use, and kept as long
    as it is in use.
    """

    stays: bool

    def open(self, blocks: Sequence[Block]) -> list[np.ndarray]:
        """The content of each: uint8[size], read-only, with the sha256 of the block. Raises InputError if a shard is
        missing or is not what the index says.
        """

    def document_ids(self, shard: str) -> list[str]:
        """The ids of a shard's documents, in order."""


class LocalShards:
    """Shards in a folder of this machine, each mapped when it is touched: its size is checked then, and the content of
    each block when that is first touched. Of more than MAPPED_SHARDS, those not used for longest are unmapped.
    """

    def __init__(self, folder: Path, shard_bytes: Mapping[str, int]) -> None:
        """shard_bytes: the size that each shard must have."""
        self._folder = folder
        self.stays = len(shard_bytes) <= MAPPED_SHARDS
        self._shard_bytes = shard_bytes
        self._mapped: OrderedDict[str, np.ndarray] = OrderedDict()
        self._checked: set[tuple[str, int]] = set()
        self._lock = threading.Lock()

    def open(self, blocks: Sequence[Block]) -> list[np.ndarray]:
        with self._lock:
            found = [self._map(block.shard)[block.offset : block.offset + block.size] for block in blocks]
            new = [place for place, block in enumerate(blocks) if (block.shard, block.offset) not in self._checked]
        for place in new:  # without the lock, so that several threads can do this at the same time
            self._check(blocks[place], found[place])
        with self._lock:
            self._checked.update((blocks[place].shard, blocks[place].offset) for place in new)
        return found

    def document_ids(self, shard: str) -> list[str]:
        return TokenShard(self._folder / shard).ids()

    def _check(self, block: Block, content: np.ndarray) -> None:
        if hashlib.sha256(content.data).digest() != block.sha256:
            raise InputError(
                f"token shard {self._folder / block.shard} has changed since it was written (bytes {block.offset} to "
                f"{block.offset + block.size}); delete it and run pretokenize again"
            )

    def _map(self, shard: str) -> np.ndarray:
        if shard not in self._mapped:
            path, expected = self._folder / shard, self._shard_bytes[shard]
            try:
                found = map_file(path)
            except FileNotFoundError as error:
                raise InputError(f"token shard {path} is missing; run pretokenize again") from error
            except OSError as error:
                raise InputError(f"token shard {path} cannot be mapped: {error}") from error
            if len(found) != expected:
                raise InputError(
                    f"token shard {path} has {len(found)} bytes, but was written with {expected}; delete it and run "
                    "pretokenize again"
                )
            self._mapped[shard] = found
            if len(self._mapped) > MAPPED_SHARDS:
                self._mapped.popitem(last=False)
        self._mapped.move_to_end(shard)
        return self._mapped[shard]


class TokenStream:
    """The tokens of one domain. Offsets are 64-bit throughout. Safe to use from several threads."""

    def __init__(self, index: ShardIndex, rows: slice, files: ShardFiles) -> None:
        """rows: those of the domain in the index, one for each block."""
        self.header: ShardHeader = index.header
        self.dtype = index.header.dtype
        self.domain = index.domain[rows.start]
        self._index = index
        self._rows = rows
        self._files = files
        borders = np.concatenate([np.zeros(1, np.int64), np.cumsum(index.num_tokens[rows], dtype=np.int64)])
        self._starts, self._ends = borders[:-1].copy(), borders[1:].copy()
        self._addresses = np.zeros(len(self._starts), np.uint64)
        self._opened: dict[int, np.ndarray] = {}  # what the addresses point to
        self._like = np.empty(0, self.dtype)

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def num_documents(self) -> int:
        return int(self._index.num_documents[self._rows].sum())

    def read(self, start: int, count: int) -> np.ndarray:
        """uint16|uint32[count]: tokens start to start + count; a view where they stand in one block."""
        end = start + count
        assert start >= 0 and count >= 0 and end <= len(self), f"tokens {start} to {end} of a stream of {len(self)}"
        if count == 0:
            return np.empty(0, self.dtype)
        blocks = np.arange(np.searchsorted(self._starts, start, side="right") - 1, np.searchsorted(self._ends, end) + 1)
        parts = [
            tokens[max(0, start - int(self._starts[block])) : end - int(self._starts[block])]
            for block, tokens in zip(blocks, self._open(blocks), strict=True)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def fill(
        self, pieces: Pieces, inputs: np.ndarray, targets: np.ndarray, positions: np.ndarray, *, isolate: bool
    ) -> int:
        """Fill the rows of a batch that the pieces name, as `data.order.gather.fill_rows` says; the largest id read.

        inputs, targets: int64[rows, n]; positions: int32[rows, n]. Raises InputError if an id is outside the
        vocabulary.
        """
        starts, ends, addresses = self._starts, self._ends, self._addresses
        opened: list[np.ndarray] = []
        if not self._files.stays:
            blocks = self._touched(pieces)
            opened = self._open(blocks)
            starts, ends = starts[blocks], ends[blocks]
            addresses = np.array([tokens.ctypes.data for tokens in opened], np.uint64)
        largest = NOT_OPEN
        while largest == NOT_OPEN:
            largest = fill_rows(
                starts,
                ends,
                addresses,
                self._like,
                pieces.row,
                pieces.start,
                pieces.length,
                self.header.end_id,
                isolate,
                inputs,
                targets,
                positions,
            )
            if largest == NOT_OPEN:
                assert self._files.stays, "a block that was opened has no address"
                self._open(self._touched(pieces))
        del opened  # was held until here
        if largest >= self.header.vocabulary_size:
            raise InputError(
                f"the tokens of domain {self.domain!r} hold id {largest}, outside their vocabulary of "
                f"{self.header.vocabulary_size}; a shard is damaged: run pretokenize again"
            )
        return largest

    def document_lengths(self) -> np.ndarray:
        """int64[num_documents]: tokens of each document, its end included. Reads the offsets of every block. Raises
        InputError if they have changed since they were written.
        """
        return np.concatenate(self._document_lengths(range(len(self._starts))))

    def document_ids(self) -> list[str]:
        """The id of each document. Reads every shard."""
        shards = [shard for shard, _ in groupby(self._index.shard[self._rows])]
        return [name for shard in shards for name in self._files.document_ids(shard)]

    def ids_of(self, pieces: Pieces) -> list[str]:
        """The ids of the documents that hold a target of the pieces, in the order of the stream. Reads no shard in
        which there is none. Raises InputError as `document_lengths`.
        """
        starts, ends = pieces.start, pieces.start + pieces.length
        first, last = (np.searchsorted(self._ends, places, side="right") for places in (starts, ends - 1))
        blocks = sorted({block for a, b in zip(first, last, strict=True) for block in range(a, b + 1)})
        ids: dict[str, list[str]] = {}
        found = []
        for block, lengths in zip(blocks, self._document_lengths(blocks), strict=True):
            begin, end = self._starts[block], self._ends[block]
            here = (starts < end) & (ends > begin)
            borders = begin + np.cumsum(lengths)
            first = np.searchsorted(borders, np.maximum(starts[here], begin), side="right")
            last = np.searchsorted(borders, np.minimum(ends[here], end) - 1, side="right")
            row = self._rows.start + block
            shard = self._index.shard[row]
            if shard not in ids:
                ids[shard] = self._files.document_ids(shard)
            before = int(self._index.num_documents[self._index.shard.index(shard) : row].sum())
            numbers = sorted({number for a, b in zip(first, last, strict=True) for number in range(a, b + 1)})
            found += [ids[shard][before + number] for number in numbers]
        return found

    def _document_lengths(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """int64[documents] of each of these blocks, as `document_lengths`."""
        lengths = []
        for first in range(0, len(numbers), BLOCKS_AT_ONCE):
            blocks = [self._offsets(number) for number in numbers[first : first + BLOCKS_AT_ONCE]]
            lengths += [np.diff(content.view(np.int64)) for content in self._files.open(blocks)]
        return lengths

    def _touched(self, pieces: Pieces) -> np.ndarray:
        """The blocks that pieces read, ascending: int64[n]."""
        return np.unique(touched_blocks(self._starts, self._ends, pieces.start, pieces.length))

    def _open(self, blocks: np.ndarray) -> list[np.ndarray]:
        """The tokens of each of blocks: int64[n]."""
        missing = [block for block in blocks.tolist() if block not in self._opened]
        asked = [self._tokens(block) for block in missing]
        found = {}
        for block, wanted, content in zip(missing, asked, self._files.open(asked), strict=True):
            assert content.size == wanted.size, f"{wanted} was opened as {content.size} bytes"
            found[block] = content.view(self.dtype)
        if self._files.stays:
            self._opened.update(found)
            for block, tokens in found.items():
                self._addresses[block] = tokens.ctypes.data
        return [found[block] if block in found else self._opened[block] for block in blocks.tolist()]

    def _tokens(self, block: int) -> Block:
        index, row = self._index, self._rows.start + block
        return Block(
            shard=index.shard[row],
            offset=int(index.tokens_offset[row]),
            size=int(index.num_tokens[row]) * self.dtype.itemsize,
            sha256=index.tokens_sha256[row],
        )

    def _offsets(self, block: int) -> Block:
        index, row = self._index, self._rows.start + block
        return Block(
            shard=index.shard[row],
            offset=int(index.offsets_offset[row]),
            size=(int(index.num_documents[row]) + 1) * np.dtype(np.int64).itemsize,
            sha256=index.offsets_sha256[row],
        )


def open_streams(
    folder: Path, expected: ShardHeader | None = None, files: ShardFiles | None = None
) -> dict[str, TokenStream]:
    """Domain -> its tokens, from `folder`/index.arrow; the shards lie there too unless `files` says where. No shard is
    touched. Raises InputError as `read_index`.
    """
    index = read_index(folder, expected)
    files = files or LocalShards(folder, dict(zip(index.shard, index.shard_bytes.tolist(), strict=True)))
    return {domain: TokenStream(index, rows, files) for domain, rows in index.domains().items()}
