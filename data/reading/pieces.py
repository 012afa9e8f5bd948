"""What readers give: pieces of a source, with documents as columns and everything else that was met on the way.

A piece holds what it holds in the order of the source: each note says before which of its documents it stands.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.reading.documents import Document, Rejected
from data.reading.tables import SCHEMA, text_buffers

BATCH_BYTES = 16 << 20
MOST_NOTES = 1 << 16
GROUP_PREFIX = "text:"

Note = Rejected | str


@dataclass(frozen=True, kw_only=True)
class Piece:
    """documents: of `SCHEMA`, all of one domain. notes: (number of the document before which it stands, a record that
    was set aside or the name of a repair). done_bytes: how far the source has been read. stopped: the source is left
    here, since it gave as much text as was wanted."""

    documents: pa.RecordBatch
    notes: tuple[tuple[int, Note], ...] = ()
    done_bytes: int = 0
    stopped: bool = False

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        return tuple(note for _, note in self.notes if isinstance(note, Rejected))

    @property
    def repairs(self) -> Counter[str]:
        return Counter(note for _, note in self.notes if isinstance(note, str))

    @property
    def domain(self) -> str | None:
        """None if there is no document."""
        return self.documents.column("domain")[0].as_py() if self.documents.num_rows else None

    def slice(self, begin: int, end: int) -> "Piece":
        """Its documents from `begin` to `end`, and the notes before them; those at the end of the piece too."""
        last = end == self.documents.num_rows
        notes = tuple((at - begin, note) for at, note in self.notes if begin <= at < end or (last and at == end))
        documents = self.documents.slice(begin, end - begin)
        return replace(self, documents=documents, notes=notes, stopped=self.stopped and last)


def columns(
    texts: pa.LargeStringArray, ids: pa.StringArray, groups: pa.StringArray | None, domain: str, source: str
) -> pa.RecordBatch:
    """A batch of `SCHEMA`. Where `groups` has no value a text is its own group: equal texts share it, under whatever
    name they stand."""
    if groups is None:
        groups = own_groups(texts)
    elif groups.null_count:
        groups = pc.coalesce(groups, own_groups(texts))
    rows = len(texts)
    arrays = [ids, texts, pa.repeat(domain, rows), groups, pa.repeat(source, rows)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def numbered(source: str, numbers: np.ndarray) -> pa.StringArray:
    """The names of documents that are called by their place in a source: source#number."""
    return pc.binary_join_element_wise(source, pa.array(numbers).cast(pa.string()), "#")


def own_groups(texts: pa.LargeStringArray) -> pa.StringArray:
    """For each text a name that follows from its bytes."""
    from data.reading.text_kernels import name_by_hash

    values, offsets = text_buffers(texts)
    prefix = np.frombuffer(GROUP_PREFIX.encode(), np.uint8)
    names = np.empty((len(texts), len(prefix) + 32), np.uint8)
    name_by_hash(values, offsets, prefix, names)
    ends = np.arange(len(texts) + 1, dtype=np.int32) * names.shape[1]
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(names))


def collect(records: Iterable[tuple[Document | Rejected, int]], repairs: Counter[str]) -> Iterator[Piece]:
    """Pieces of records that come one by one, all of one domain: (record, how far the source has been read). `repairs`
    is filled while they come, and emptied."""
    rows: list[Document] = []
    notes: list[tuple[int, Note]] = []
    size = done_bytes = 0
    for record, done_bytes in records:
        notes += [(len(rows), name) for name in repairs.elements()]
        repairs.clear()
        if isinstance(record, Rejected):
            notes.append((len(rows), record))
        else:
            rows.append(record)
            size += len(record.text)
        if size >= BATCH_BYTES or len(notes) >= MOST_NOTES:
            yield Piece(documents=table_of(rows), notes=tuple(notes), done_bytes=done_bytes)
            rows, notes, size = [], [], 0
    notes += [(len(rows), name) for name in repairs.elements()]
    repairs.clear()
    if rows or notes:
        yield Piece(documents=table_of(rows), notes=tuple(notes), done_bytes=done_bytes)


def table_of(rows: list[Document]) -> pa.RecordBatch:
    """The documents as a batch of `SCHEMA`."""
    arrays = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in SCHEMA]
    texts, groups = arrays[SCHEMA.get_field_index("text")], arrays[SCHEMA.get_field_index("group")]
    if groups.null_count:
        arrays[SCHEMA.get_field_index("group")] = pc.coalesce(groups, own_groups(texts))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def until(pieces: Iterable[Piece], most_bytes: int) -> Iterator[Piece]:
    """The pieces of one domain up to the document with which there are `most_bytes` of text."""
    left = most_bytes
    for piece in pieces:
        ends = np.cumsum(_lengths(piece.documents.column("text")))
        if not len(ends) or ends[-1] < left:
            yield piece
            left -= int(ends[-1]) if len(ends) else 0
            continue
        rows = int(np.searchsorted(ends, left)) + 1
        notes = tuple(note for note in piece.notes if note[0] < rows)
        yield replace(piece, documents=piece.documents.slice(0, rows), notes=notes, stopped=True)
        return


def batches(pieces: Iterable[Piece], batch_bytes: int) -> Iterator[Piece]:
    """The same documents and notes in pieces of one domain each, with `batch_bytes` of strings at most or one document:
    small ones are joined, large ones cut.

    So a string column never comes near its 32-bit offsets.
    """
    waiting: list[Piece] = []
    held = num_notes = 0
    for piece in pieces:
        ends = np.cumsum(_row_bytes(piece.documents))
        size = int(ends[-1]) if len(ends) else 0
        other_domain = piece.domain is not None and _domain(waiting) not in (None, piece.domain)
        if waiting and (other_domain or held + size > batch_bytes or num_notes >= MOST_NOTES):
            yield _join(waiting)
            waiting, held, num_notes = [], 0, 0
        begin = done = 0
        while size - done > batch_bytes and begin + 1 < len(ends):
            end = max(begin + 1, int(np.searchsorted(ends, done + batch_bytes, side="right")))
            if end == len(ends):
                break
            yield piece.slice(begin, end)
            begin, done = end, int(ends[end - 1])
        waiting.append(piece.slice(begin, len(ends)))
        held += size - done
        num_notes += len(waiting[-1].notes)
    if waiting:
        yield _join(waiting)


def _domain(pieces: list[Piece]) -> str | None:
    return next((piece.domain for piece in pieces if piece.domain is not None), None)


def _join(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    before = np.cumsum([0, *(piece.documents.num_rows for piece in pieces)]).tolist()
    notes = tuple((at + first, note) for piece, first in zip(pieces, before, strict=False) for at, note in piece.notes)
    documents = pa.Table.from_batches([piece.documents for piece in pieces]).combine_chunks().to_batches()
    return replace(
        pieces[-1],
        documents=documents[0] if documents else pieces[0].documents,
        notes=notes,
        stopped=any(piece.stopped for piece in pieces),
    )


def _row_bytes(documents: pa.RecordBatch) -> np.ndarray:
    """int64[num_rows], of the strings of each document, the domain apart."""
    return sum(
        (_lengths(documents.column(name)) for name in ("id", "text", "group", "source")),
        np.zeros(documents.num_rows, np.int64),
    )


def _lengths(strings: pa.Array) -> np.ndarray:
    return pc.binary_length(strings).to_numpy(zero_copy_only=False).astype(np.int64)
