"""Web archives: each page is a document, and damage costs the record in which it is."""

import gzip
import io
import random
import zlib
from collections import Counter
from pathlib import Path

import pytest

from data.errors import InputError
from data.reading import warc
from data.reading.documents import Document, Rejected
from data.reading.records import Fields
from data.reading.warc import NO_PAGE, NO_SUCCESS, read_warc

HTML = (
    "<html><body><p>Page {} tells at some length of the river and of the mill that stood beside it.</p></body></html>"
)


def block(kind: str, content: bytes, url: str = "http://site.example/") -> bytes:
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2020-01-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000000>\r\n"
        f"Content-Type: application/http; msgtype={kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content + b"\r\n\r\n"


def response(
    number: int, *, body: bytes | None = None, headers: str = "", status: str = "200 OK", kind: str = "text/html"
) -> bytes:
    content = HTML.format(number).encode() if body is None else body
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{headers}\r\n"
    return block("response", head.encode() + content, f"http://site{number % 2}.example/{number}#part")


def read(path: Path, content: bytes, **fields: str) -> tuple[list[Document], list[Rejected], Counter[str]]:
    path.write_bytes(content)
    repairs: Counter[str] = Counter()
    found = list(read_warc(path, "a.warc", Fields(**fields), "web", repairs))
    assert all(0 <= place <= len(content) for _, place in found)
    records = [record for record, _ in found]
    return [r for r in records if isinstance(r, Document)], [r for r in records if isinstance(r, Rejected)], repairs


def pages(documents: list[Document]) -> list[int]:
    return [int(document.text.split()[1]) for document in documents]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.warc"


RECORDS = [response(i) for i in range(6)]
MEMBERS = [gzip.compress(record) for record in RECORDS]


def test_responses_with_html_are_documents_and_all_else_is_left_out_and_counted(path):
    content = [
        block("warcinfo", b"software: x\r\n"),
        block("request", b"GET / HTTP/1.1\r\n\r\n"),
        RECORDS[0],
        response(1, kind="image/png"),
        response(2, status="404 Not Found"),
        response(3, status="301 Moved"),
        response(4, kind="text/HTML; charset=UTF-8"),
        response(5, kind="application/xhtml+xml"),
        response(6, body=b"<html><script>x</script></html>"),
        block("metadata", b"x: y\r\n"),
    ]
    documents, rejected, repairs = read(path, b"".join(content))
    assert pages(documents) == [0, 4, 5] and repairs == {NO_PAGE: 1, NO_SUCCESS: 2}
    assert [(r.reason, r.num_bytes) for r in rejected] == [("no text", 31)]
    offset = len(content[0]) + len(content[1])
    assert documents[0].id == f"a.warc#{offset}" and documents[0].source == "a.warc"


def test_compressed_by_record_and_as_a_whole(path):
    for content in (b"".join(RECORDS), b"".join(MEMBERS), gzip.compress(b"".join(RECORDS))):
        documents, rejected, _ = read(path, content)
        assert pages(documents) == list(range(6)) and not rejected


def test_ids_and_groups_may_be_urls_and_hosts(path):
    documents, _, _ = read(path, b"".join(RECORDS))
    assert [d.group for d in documents[:2]] == ["http://site0.example/0", "http://site1.example/1"]
    documents, _, _ = read(path, b"".join(RECORDS), id="url", group="host")
    assert documents[1].id == "http://site1.example/1"
    assert [d.group for d in documents] == ["site0.example", "site1.example"] * 3


@pytest.mark.parametrize("members", [RECORDS, MEMBERS])
def test_a_cut_off_archive_loses_its_last_record(path, members):
    documents, rejected, _ = read(path, b"".join(members)[:-40])
    assert pages(documents) == [0, 1, 2, 3, 4] and [r.reason for r in rejected] == ["damaged record"]


@pytest.mark.parametrize("at", [0, 2, 12, 60, 150, -12])
def test_a_damaged_member_costs_itself(path, at):
    damaged = bytearray(MEMBERS[2])
    damaged[at] ^= 0x5A
    documents, rejected, _ = read(path, b"".join([*MEMBERS[:2], bytes(damaged), *MEMBERS[3:]]))
    assert pages(documents) == [0, 1, 3, 4, 5] and [r.reason for r in rejected] == ["damaged record"]


@pytest.mark.parametrize(
    "damaged",
    [
        RECORDS[2].replace(b"WARC/1.0", b"WXRC/1.0"),
        RECORDS[2].replace(b"Content-Length: 1", b"Content-Length: 9", 1),
        RECORDS[2].replace(b"HTTP/1.1 200", b"HTTP/1.1 abc"),
        RECORDS[2][:-150],
        b"garbage \r\n\r\n garbage\r\n" * 50,
    ],
)
def test_a_damaged_record_costs_itself(path, damaged):
    documents, rejected, _ = read(path, b"".join([*RECORDS[:2], damaged, *RECORDS[3:]]))
    assert pages(documents) == [0, 1, 3, 4, 5] and [r.reason for r in rejected] == ["damaged record"]


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08 no archive", b"WARC/1.0", b"WARC/1.0\r\n\r\n"])
def test_what_is_no_archive_gives_no_document(path, content):
    documents, rejected, _ = read(path, content)
    assert not documents and {r.reason for r in rejected} <= {"damaged record"}
    assert bool(rejected) or len(content) in (0, 8, 12)


def test_bodies_are_decoded_where_they_are_encoded_as_their_header_says(path):
    html = HTML.format(7).encode()
    chunked = b"%x\r\n" % len(html) + html + b"\r\n0\r\n\r\n"
    content = [
        response(0, body=gzip.compress(html), headers="Content-Encoding: gzip\r\n"),
        response(0, body=zlib.compress(html), headers="Content-Encoding: deflate\r\n"),
        response(0, body=html, headers="Content-Encoding: gzip\r\n"),
        response(0, body=chunked, headers="Transfer-Encoding: chunked\r\n"),
        response(0, body=html, headers="Transfer-Encoding: chunked\r\n"),
        response(0, body=html, headers="Content-Encoding: br\r\n"),
        response(0, body=HTML.format("7 é").encode("latin-1"), kind="text/html; charset=latin-1"),
    ]
    documents, rejected, _ = read(path, b"".join(content))
    assert pages(documents) == [7] * 7 and "é" in documents[6].text and not rejected


def test_a_page_too_long_to_be_held_is_set_aside(path, monkeypatch):
    monkeypatch.setattr(warc, "MOST_PAGE_BYTES", 500)
    long = response(1, body=HTML.format(1).encode() + b" " * 500)
    documents, rejected, _ = read(path, b"".join([RECORDS[0], long, RECORDS[2]]))
    assert pages(documents) == [0, 2] and [r.reason for r in rejected] == ["too long"]


@pytest.mark.parametrize("members", [RECORDS, MEMBERS])
def test_any_damage_leaves_most_records(path, monkeypatch, members):
    monkeypatch.setattr(warc, "SEARCH_BYTES", 64)
    rng = random.Random(1)
    kept = 0
    for _ in range(100):
        content = bytearray(b"".join(members))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(content))
            content[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
        documents, rejected, repairs = read(path, bytes(content))
        assert len({d.id for d in documents}) == len(documents) <= 6
        kept += len(documents)
    assert kept > 250


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InputError, match="a source is a readable file"):
        list(read_warc(tmp_path / "none.warc", "none.warc", Fields(), "web", Counter()))


def test_a_page_that_grows_beyond_the_limit_when_decoded_is_told_of(path, monkeypatch):
    monkeypatch.setattr(warc, "MOST_PAGE_BYTES", 5000)
    bomb = gzip.compress(HTML.format(1).encode() + b" " * 100_000)
    content = response(1, body=bomb, headers="Content-Encoding: gzip\r\n") + response(2)
    documents, rejected, _ = read(path, content)
    assert pages(documents) == [2]
    assert [(r.reason, r.num_bytes) for r in rejected] == [(warc.TOO_LONG, len(bomb))]


def test_places_that_only_look_like_a_record_are_passed_in_one_reading(path, monkeypatch):
    reads = []

    class File(io.BytesIO):
        def read(self, size=-1):
            reads.append(size)
            return super().read(size)

    file = File(warc.GZIP_START * 5000 + MEMBERS[0])
    assert warc._next_start(file, 1, len(file.getvalue())) == 3 * 5000
    assert len(reads) == 2
