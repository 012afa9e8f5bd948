"""Reading Parquet files with a column of texts, whole or by ranges of row groups.

Columns stay columns: only the rows of which something is to be said pass through `data.reading.documents.admit`.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from data.errors import InputError
from data.reading.documents import Document, Place, admit
from data.reading.pieces import Note, Piece, columns, numbered
from data.reading.records import Fields, name_of
from data.reading.tables import text_buffers

PIECE_BYTES = 15 << 20  # most of a batch, so that it need not be copied into one
MOST_ROWS = 1 << 16
BUFFER_BYTES = 1 << 20


def row_group_bytes(path: Path) -> list[int]:
    """The size of each row group, uncompressed. Raises InputError for a file that cannot be read."""
    with _open(path) as file:
        return [_group_bytes(file, group) for group in range(file.num_row_groups)]


def read_parquet(
    path: Path, fields: Fields, domain: str, *, name: str, begin: int = 0, end: int | None = None
) -> Iterator[Piece]:
    """The records of the row groups from `begin` to `end`. name: what ids and sources call the file. done_bytes: of
    `row_group_bytes`, by the share of rows. Raises InputError for a file that cannot be read or has not the columns."""
    wanted = list(dict.fromkeys(name for name in (fields.text, fields.id, fields.group) if name is not None))
    try:
        with _open(path) as file:
            _require_columns(path, file.schema_arrow, fields)
            groups = list(range(file.num_row_groups))
            sizes = [file.metadata.row_group(group).num_rows for group in groups]
            row, chosen = sum(sizes[:begin]), groups[begin:end]
            num_rows, num_bytes = sum(sizes[begin:end]), sum(_group_bytes(file, group) for group in chosen)
            rows = _rows_of_a_piece(file, chosen, fields.text)
            done, place = 0, Place(name, domain, name)
            for batch in file.iter_batches(batch_size=rows, row_groups=chosen, columns=wanted, use_threads=False):
                done += batch.num_rows
                documents, notes = _documents(batch, row, fields, place)
                yield Piece(documents=documents, notes=notes, done_bytes=num_bytes * done // num_rows)
                row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path}: not a readable Parquet file ({error}); fetch or write it again, then run the same command"
    )


def _group_bytes(file: pq.ParquetFile, group: int) -> int:
    return int(file.metadata.row_group(group).total_byte_size)


def _rows_of_a_piece(file: pq.ParquetFile, groups: list[int], column: str) -> int:
    """How many rows have PIECE_BYTES of text at most, by what the file says of its size; row groups are cut evenly."""
    leaves = [file.metadata.schema.column(leaf).path for leaf in range(file.metadata.num_columns)]
    leaf = leaves.index(column)
    rows = max((file.metadata.row_group(group).num_rows for group in groups), default=1)
    size = max((file.metadata.row_group(group).column(leaf).total_uncompressed_size for group in groups), default=0)
    return max(1, min(MOST_ROWS, -(-rows // max(1, -(-size // PIECE_BYTES)))))


def _documents(
    batch: pa.RecordBatch, first_row: int, fields: Fields, place: Place
) -> tuple[pa.RecordBatch, tuple[tuple[int, Note], ...]]:
    from data.reading.text_kernels import FINE, scan_texts

    # As bytes, since Arrow does not check that what a file calls a string is UTF-8.
    raw = batch.column(fields.text).cast(pa.large_binary())
    missing = raw.is_null().to_numpy(zero_copy_only=False)
    texts = _unchecked_text(raw.fill_null(b"") if raw.null_count else raw)
    found = np.empty(len(texts), np.uint8)
    scan_texts(*text_buffers(texts), found)
    ids = numbered(place.source, np.arange(first_row, first_row + len(texts)))
    if fields.id is not None:
        ids = pc.coalesce(_names(batch.column(fields.id)), ids)
    groups = None if fields.group is None else _names(batch.column(fields.group))
    odd = np.nonzero(found != FINE)[0]
    if not len(odd):
        return columns(texts, ids, groups, place.domain, place.source), ()

    stays = np.ones(len(texts), bool)
    repaired: dict[int, str] = {}
    notes: list[tuple[int, Note]] = []
    num_gone = 0
    for row in odd.tolist():
        repairs: Counter[str] = Counter()
        value = None if missing[row] else raw[row].as_py()
        record = admit(value, Place(ids[row].as_py(), place.domain, place.source), group=None, repairs=repairs)
        notes += [(row - num_gone, name) for name in repairs]
        if isinstance(record, Document):
            repaired[row] = record.text
        else:
            stays[row] = False
            notes.append((row - num_gone, record))
            num_gone += 1
    if repaired:
        replaced = np.zeros(len(texts), bool)
        replaced[list(repaired)] = True
        texts = pc.replace_with_mask(texts, pa.array(replaced), pa.array(list(repaired.values()), pa.large_string()))
    left = pa.array(stays)
    groups = None if groups is None else groups.filter(left)
    return columns(texts.filter(left), ids.filter(left), groups, place.domain, place.source), tuple(notes)


def _names(column: pa.Array) -> pa.StringArray:
    """What a column calls its rows, null where it calls them nothing."""
    from data.reading.text_kernels import FINE, scan_texts

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_integer(column.type) or types.is_null(column.type):
        return column.cast(pa.string())
    raw = column.cast(pa.large_binary()).fill_null(b"")
    names = _unchecked_text(raw)
    found = np.empty(len(names), np.uint8)
    scan_texts(*text_buffers(names), found)
    odd = np.nonzero(found != FINE)[0].tolist()
    if odd:
        replaced = np.zeros(len(names), bool)
        replaced[odd] = True
        values = pa.array([name_of(raw[row].as_py()) for row in odd], pa.large_string())
        names = pc.replace_with_mask(names, pa.array(replaced), values)
    return names.cast(pa.string())


def _unchecked_text(values: pa.LargeBinaryArray) -> pa.LargeStringArray:
    """The same buffers under the type of text."""
    return pa.Array.from_buffers(pa.large_string(), len(values), values.buffers(), offset=values.offset)


def _require_columns(path: Path, schema: pa.Schema, fields: Fields) -> None:
    for name, what in ((fields.text, "text"), (fields.id, "id"), (fields.group, "group")):
        if name is None:
            continue
        if name not in schema.names:
            raise InputError(
                f"{path}: there is no column {name!r}; it has {', '.join(schema.names)}; set the source's field names"
            )
        kind = schema.field(name).type
        value = kind.value_type if types.is_dictionary(kind) else kind
        if not (_is_text(value) or (what != "text" and (types.is_integer(value) or types.is_null(value)))):
            holds = "text" if what == "text" else "names (strings or whole numbers)"
            raise InputError(f"{path}: column {name!r} holds {kind}, not {holds}; set the source's {what}_field")


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
        )
    )
