"""Web archives (.warc, .warc.gz): their successful responses with HTML become documents.

A damaged record costs itself: reading goes on at the next place that looks like a record. Where the whole archive is
one compressed stream, nothing behind the damage can be found.
"""

import io
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urldefrag, urlsplit

from data.errors import InputError
from data.reading.documents import TOO_LONG, Document, Place, Rejected
from data.reading.records import Fields
from data.reading.web import admit_page

DAMAGED = "damaged record"
NO_PAGE = "response without HTML left out"
NO_SUCCESS = "response of an error or a redirection left out"
PAGE_TYPES = ("text/html", "application/xhtml+xml")
MOST_PAGE_BYTES = 64 << 20
SEARCH_BYTES = 1 << 20
HEAD_BYTES = 4096
GZIP_START, PLAIN_START = b"\x1f\x8b\x08", b"WARC/1."
ANOTHER_RECORD = b"\r\n\r\nWARC/1."


class _DamagedError(Exception):
    pass


@dataclass(frozen=True)
class _Response:
    offset: int
    record: Any
    content: bytes


@dataclass(frozen=True)
class _Damage:
    offset: int
    num_bytes: int
    detail: str


def read_warc(
    path: Path, name: str, fields: Fields, domain: str, repairs: Counter[str]
) -> Iterator[tuple[Document | Rejected, int]]:
    """The pages of an archive and what was set aside, each with its place in the file.

    name: what ids and sources call the file. Ids are name#offset of the record, or the URL with fields.id = "url";
    groups are URLs, or hosts with fields.group = "host". What is no page is counted in `repairs`. Raises InputError for
    a file that cannot be read.
    """
    try:
        with open(path, "rb") as file:
            for found in _records(file):
                place = Place(f"{name}#{found.offset}", domain, name)
                if isinstance(found, _Damage):
                    yield Rejected(place.id, domain, name, DAMAGED, found.detail, found.num_bytes), found.offset
                elif (page := _page(found.record, found.content, fields, place, repairs)) is not None:
                    yield page, found.offset
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; a source is a readable file") from None


def _records(file: BinaryIO) -> Iterator[_Response | _Damage]:
    """What stands in an archive, in its order."""
    size = file.seek(0, io.SEEK_END)
    position = 0
    behind: _Damage | None = None
    while position < size:
        start, end, whole = position, position, False
        try:
            for record in _responses(file, position):
                start, whole = record.stream_pos, False
                content = _payload(record)
                if behind:
                    yield behind
                    behind = None
                yield _Response(start, record, content)
                end, whole = start + len(content), True
            break
        except _DamagedError as error:
            position = _next_start(file, start + 1, size)
            damage = _Damage(end if whole else start, max(0, position - end) if whole else position - start, str(error))
            # Behind a whole record the damage may be in the one that is tried next, and is then told of there.
            behind = damage if whole else None
            if not whole:
                yield damage
    if behind:
        yield behind


def _responses(file: BinaryIO, position: int) -> Iterator[Any]:
    """The responses from a place of the file on. Raises _DamagedError where they cannot be told apart."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    file.seek(position)
    try:
        yield from ArchiveIterator(file, record_types=WarcRecordType.response, parse_http=True)
    except OSError as error:
        raise _DamagedError(str(error)) from None


def _payload(record: Any) -> bytes:
    """The body of a response as it was sent, cut behind MOST_PAGE_BYTES. Raises _DamagedError if it is not whole."""
    wanted = min(record.content_length, MOST_PAGE_BYTES + 1)
    try:
        content = record.reader.read(wanted)
    except OSError as error:
        raise _DamagedError(str(error)) from None
    if len(content) < wanted:
        raise _DamagedError(f"{len(content)} bytes of {record.content_length}")
    if ANOTHER_RECORD in content:
        raise _DamagedError("another record inside")
    headers = record.http_headers
    if headers is None or headers.status_code is None:
        raise _DamagedError("no HTTP header")
    return content


def _page(
    record: Any, content: bytes, fields: Fields, place: Place, repairs: Counter[str]
) -> Document | Rejected | None:
    """None for what is no page."""
    headers = record.http_headers
    if not 200 <= headers.status_code < 300:
        repairs[NO_SUCCESS] += 1
        return None
    if (record.http_content_type or "").lower() not in PAGE_TYPES:
        repairs[NO_PAGE] += 1
        return None
    if len(content) > MOST_PAGE_BYTES:
        return Rejected(
            place.id, place.domain, place.source, TOO_LONG, f"{record.content_length} bytes", record.content_length
        )
    url = urldefrag(record.headers.get("WARC-Target-URI") or place.id)[0]
    group = _host(url) if fields.group == "host" else url
    if fields.id == "url":
        place = Place(url, place.domain, place.source)
    page = _decoded(content, headers)
    if len(page) > MOST_PAGE_BYTES:
        return Rejected(
            place.id, place.domain, place.source, TOO_LONG, f"more than {MOST_PAGE_BYTES} bytes decoded", len(content)
        )
    return admit_page(page, record.http_charset, place, group=group, repairs=repairs)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _decoded(content: bytes, headers: Any) -> bytes:
    """The body without its transfer and content encoding, cut behind MOST_PAGE_BYTES and one more; as it is where
    it is not encoded as its header says, since many archives store it decoded."""
    from fastwarc.stream_io import BrotliReader, ChunkedReader, GzipReader

    for header, name, reader in (
        ("Transfer-Encoding", "chunked", ChunkedReader),
        ("Content-Encoding", "gzip", GzipReader),
        ("Content-Encoding", "deflate", partial(GzipReader, zlib=True)),
        ("Content-Encoding", "br", BrotliReader),
    ):
        if name in (headers.get(header) or "").lower():
            try:
                content = reader(io.BytesIO(content)).read(MOST_PAGE_BYTES + 1)
            except OSError:
                continue
    return content


def _next_start(file: BinaryIO, position: int, size: int) -> int:
    """The first place from `position` on where a record seems to begin, or the end of the file."""
    file.seek(0)
    compressed = file.read(2) == GZIP_START[:2]
    start = GZIP_START if compressed else PLAIN_START
    while position < size:
        file.seek(position)
        block = file.read(SEARCH_BYTES + HEAD_BYTES)
        found = block.find(start, 0, SEARCH_BYTES + len(start) - 1)
        while found >= 0:
            if not compressed or _begins_record(block[found : found + HEAD_BYTES]):
                return position + found
            found = block.find(start, found + 1, SEARCH_BYTES + len(start) - 1)
        position += SEARCH_BYTES
    return size


def _begins_record(head: bytes) -> bool:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, len(PLAIN_START)).startswith(PLAIN_START)
    except zlib.error:
        return False
