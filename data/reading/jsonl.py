"""Reading files of one JSON object a line (.jsonl, also .gz and .zst), whole or by ranges of bytes.

Lines end at \\n only: U+2028 and its like stay inside a text. Plain lines become columns in a kernel; a line with
anything unusual goes through Python's own parser and `data.reading.documents.admit`, with the same result.
"""

import io
import json
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.reading.compressed import is_compressed, open_stream
from data.reading.documents import INVALID_UTF8, MALFORMED_JSON, TOO_LONG, Document, Place, Rejected
from data.reading.pieces import Note, Piece, columns, numbered, table_of
from data.reading.records import Fields, from_record

BLOCK_BYTES = 2 << 20
MOST_LINE_BYTES = 1 << 30
MOST_DEPTH = 500  # Python's own limit depends on how deep its caller is
COUNTED_BYTES = 64 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_jsonl(
    path: Path, fields: Fields, domain: str, *, name: str, begin: int = 0, end: int | None = None
) -> Iterator[Piece]:
    """The records of the lines that start in the bytes from `begin` to `end`; of all lines where the file is
    compressed. name: what ids and sources call the file. Raises InputError for a file that cannot be read."""
    with open_stream(path) as (stream, raw):
        first, last, line = 0, None, 1
        if not is_compressed(path):
            size = raw.seek(0, 2)
            first = _line_start(raw, begin)
            last = size if end is None or end >= size else _line_start(raw, end)
            line = 1 + _newlines_before(path, begin) + (first > begin)
            raw.seek(first)
        for lines, num_bytes in _blocks(stream, None if last is None else last - first):
            done = raw.tell() - first
            place = Place(name, domain, name)
            if lines is None:
                rejected = Rejected(f"{name}#{line}", domain, name, TOO_LONG, f"{num_bytes} bytes in a line", num_bytes)
                yield Piece(documents=table_of([]), notes=((0, rejected),), done_bytes=done)
                line += 1
            else:
                documents, notes, num_lines = _parse(lines, num_bytes, line, fields, place)
                yield Piece(documents=documents, notes=notes, done_bytes=done)
                line += num_lines


def _line_start(raw: BinaryIO, place: int) -> int:
    """The place of the first line that starts at `place` or later."""
    if place == 0:
        return 0
    raw.seek(place - 1)
    while block := raw.read(BLOCK_BYTES):
        found = block.find(b"\n")
        if found >= 0:
            return raw.tell() - len(block) + found + 1
    return raw.tell()


def _newlines_before(path: Path, place: int) -> int:
    """How many \\n there are before a place. What was counted is remembered in this process, since each part of a file
    asks for all that is before it."""
    stat = path.stat()
    identity = (str(path), stat.st_size, stat.st_mtime_ns)
    return sum(_count(*identity, begin, min(begin + COUNTED_BYTES, place)) for begin in range(0, place, COUNTED_BYTES))


@lru_cache(maxsize=1 << 16)
def _count(path: str, size: int, modified: int, begin: int, end: int) -> int:
    from data.reading.json_kernels import count_newlines

    with open(path, "rb") as file:
        file.seek(begin)
        return int(count_newlines(np.frombuffer(file.read(end - begin), np.uint8)))


def _blocks(stream: BinaryIO, num_bytes: int | None) -> Iterator[tuple[np.ndarray | None, int]]:
    """Whole lines of the next `num_bytes` bytes of a stream: (uint8, the lines and PADDING bytes behind them; bytes
    without the padding), or (None, bytes) for a line that is longer than MOST_LINE_BYTES.

    The memory is used again for the next lines: fresh pages cost more than the parser.
    """
    from data.reading.json_kernels import PADDING

    buffer = bytearray(BLOCK_BYTES + PADDING)
    held = skipped = 0
    left = num_bytes
    while True:
        if len(buffer) < held + BLOCK_BYTES + PADDING:
            buffer, short = bytearray(2 * len(buffer) + BLOCK_BYTES), buffer
            buffer[:held] = memoryview(short)[:held]
            del short
        wanted = BLOCK_BYTES if left is None else min(BLOCK_BYTES, left)
        count = cast(io.BufferedIOBase, stream).readinto(memoryview(buffer)[held : held + wanted])
        if not count:
            break
        left = None if left is None else left - count
        end, begin = held + count, 0
        if skipped:
            begin = buffer.find(b"\n", 0, end) + 1
            skipped += begin or end
            if not begin:
                continue
            yield None, skipped
            skipped = 0
        cut = max(begin, buffer.rfind(b"\n", max(begin, held), end) + 1)
        if cut > begin:
            yield np.frombuffer(buffer, np.uint8)[begin : cut + PADDING], cut - begin
        held = end - cut
        if cut:
            buffer[:held] = buffer[cut:end]
        if held > MOST_LINE_BYTES:
            held, skipped = 0, held
    if skipped:
        yield None, skipped
    elif held:
        yield np.frombuffer(buffer, np.uint8)[: held + PADDING], held


def _parse(
    values: np.ndarray, num_bytes: int, line: int, fields: Fields, place: Place
) -> tuple[pa.RecordBatch, tuple[tuple[int, Note], ...], int]:
    """The documents and notes of a block of lines, of which the first has the number `line`, and how many lines there
    are."""
    from data.reading.json_kernels import EMPTY_LINE, PLAIN, UNUSUAL, count_newlines, line_ends, parse_lines

    if line == 1 and values[: len(BYTE_ORDER_MARK)].tobytes() == BYTE_ORDER_MARK:
        values, num_bytes = values[len(BYTE_ORDER_MARK) :], num_bytes - len(BYTE_ORDER_MARK)
    values.flags.writeable = False  # as all text that kernels read: they are compiled for one type
    num_newlines = count_newlines(values[:num_bytes])
    ends = np.full(num_newlines + (num_bytes > 0 and values[num_bytes - 1] != 10), num_bytes)
    line_ends(values, num_bytes, ends[:num_newlines])

    names = [name.encode() for name in (fields.text, fields.id or "", fields.group or "")]
    status = np.full(len(ends), EMPTY_LINE, np.uint8)
    text, id, group = (_allocate(len(values) if name else 0) for name in names)
    out = text, id, group
    out_ends = np.zeros((3, len(ends) + 1), np.int64)
    present = np.zeros((3, len(ends)), bool)
    wanted = np.frombuffer(b"".join(names), np.uint8), np.cumsum([len(name) for name in names])
    n = parse_lines(values, ends, *wanted, status, out, out_ends, present)

    plain_lines = np.nonzero(status == PLAIN)[0]
    place_ids = numbered(place.source, plain_lines + line)
    ids, groups = (_names(out[i], out_ends[i, : n + 1], present[i, :n]) if names[i] else None for i in (1, 2))
    plain = columns(
        pa.LargeStringArray.from_buffers(n, pa.py_buffer(out_ends[0, : n + 1]), pa.py_buffer(out[0])),
        place_ids if ids is None else pc.coalesce(ids, place_ids),
        groups,
        place.domain,
        place.source,
    )
    starts = np.concatenate([[0], ends[:-1]])
    unusual = np.nonzero(status == UNUSUAL)[0].tolist()
    others = [(i, values[starts[i] : ends[i]].tobytes()) for i in unusual]
    documents, notes = _with_others(plain, plain_lines, others, line, fields, place)
    return documents, notes, len(ends)


def _allocate(num_bytes: int) -> np.ndarray:
    """From Arrow's memory, which keeps the pages that were freed."""
    return np.frombuffer(pa.allocate_buffer(num_bytes), np.uint8)


def _names(values: np.ndarray, ends: np.ndarray, present: np.ndarray) -> pa.StringArray:
    """Names of documents or groups, null where there is none."""
    buffers = [pa.array(present).buffers()[1], pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(values)]
    return pa.StringArray.from_buffers(len(present), buffers[1], buffers[2], buffers[0])


def _with_others(
    plain: pa.RecordBatch,
    plain_lines: np.ndarray,
    others: list[tuple[int, bytes]],
    first_line: int,
    fields: Fields,
    place: Place,
) -> tuple[pa.RecordBatch, tuple[tuple[int, Note], ...]]:
    """The documents of the plain lines and of the others, in the order of the lines, and what is to be said of the
    others."""
    if not others:
        return plain, ()
    rows: list[Document] = []
    row_lines: list[int] = []
    found: list[tuple[int, Note]] = []
    for i, content in others:
        repairs: Counter[str] = Counter()
        record = from_line(
            content, fields, Place(f"{place.source}#{first_line + i}", place.domain, place.source), repairs
        )
        found += [(i, name) for name in repairs]
        if isinstance(record, Rejected):
            found.append((i, record))
        else:
            rows.append(record)
            row_lines.append(i)
    lines = np.concatenate([plain_lines, np.array(row_lines, np.int64)])
    order = np.argsort(lines)
    documents = pa.concat_batches([plain, table_of(rows)]).take(pa.array(order)) if rows else plain
    before = np.searchsorted(lines[order], [i for i, _ in found]).tolist()
    return documents, tuple((at, note) for at, (_, note) in zip(before, found, strict=True))


def from_line(line: bytes, fields: Fields, place: Place, repairs: Counter[str]) -> Document | Rejected:
    """The document of any line, or why there is none."""
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return Rejected(place.id, place.domain, place.source, INVALID_UTF8, f"byte {error.start}", len(line))
    except (ValueError, RecursionError) as error:
        return Rejected(place.id, place.domain, place.source, MALFORMED_JSON, str(error), len(line))
    if not isinstance(record, dict):
        return Rejected(
            place.id, place.domain, place.source, MALFORMED_JSON, f"a {type(record).__name__}, not an object", len(line)
        )
    if line.count(b"[") + line.count(b"{") > MOST_DEPTH and _depth(line) > MOST_DEPTH:
        return Rejected(
            place.id, place.domain, place.source, MALFORMED_JSON, f"nested more than {MOST_DEPTH} deep", len(line)
        )
    return from_record(record, fields, place, repairs, num_bytes=len(line))


def _depth(line: bytes) -> int:
    from data.reading.json_kernels import depth

    return int(depth(np.frombuffer(line, np.uint8)))
