"""Parts of sources: what each reads, that all of them give a sequential read, and that a part can be read from its
middle."""

import gzip
import json
import os
import pickle
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import InputError
from data.reading.jsonl import read_jsonl
from data.reading.records import Fields
from stages.curate import parts
from stages.curate.parts import ReadBatch, plan_parts, read_part
from stages.curate.source import Source


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def source(path: str, kind: str = "jsonl", **settings) -> Source:
    return Source(kind=kind, path=path, domain="web", **settings)


def write_jsonl(path: str, count: int, start: int = 0) -> None:
    records = [
        {"text": f"text {i} " + "x" * (i % 37)} if i % 10 else {"no": "text"} for i in range(start, start + count)
    ]
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))


def read(*sources: Source) -> list[ReadBatch]:
    """All batches of all parts, each part gone through pickle as on its way to another process."""
    return [batch for part in plan_parts(sources) for batch in read_part(pickle.loads(pickle.dumps(part)))]


def rows(batches: list[ReadBatch]) -> list[dict]:
    return [row for batch in batches for row in batch.batch.to_pylist()]


def test_parts_give_a_sequential_read(monkeypatch):
    write_jsonl("a.jsonl", 200)
    write_jsonl("b.jsonl", 3, start=1)
    Path("c.jsonl").write_text("")
    Path("d.jsonl.gz").write_bytes(gzip.compress(Path("a.jsonl").read_bytes()))
    whole = [
        piece
        for name in ("a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl.gz")
        for piece in read_jsonl(Path(name), Fields(), "web", name=name)
    ]
    monkeypatch.setattr(parts, "PART_BYTES", 1000)
    found = read(source("*.jsonl*"))
    plan = plan_parts((source("*.jsonl*"),))
    assert len(plan) > 8 and [part.number for part in plan] == list(range(len(plan)))
    assert rows(found) == [row for piece in whole for row in piece.documents.to_pylist()]
    assert [r for batch in found for r in batch.rejected] == [r for piece in whole for r in piece.rejected]
    assert rows(found)[0]["id"] == "a.jsonl#2" and rows(found)[180]["id"] == "b.jsonl#1"


def test_small_files_make_one_part_together(monkeypatch):
    for i in range(10):
        Path(f"{i}.txt").write_text(f"text {i}" + "x" * 93)
    (part,) = plan_parts((source("*.txt", kind="text"),))
    assert len(part.spans) == 10 and part.num_bytes == sum(Path(f"{i}.txt").stat().st_size for i in range(10))
    monkeypatch.setattr(parts, "PART_BYTES", 350)
    plan = plan_parts((source("*.txt", kind="text"),))
    assert [len(part.spans) for part in plan] == [3, 3, 3, 1]
    assert [row["id"] for row in rows(read(source("*.txt", kind="text")))] == [f"{i}.txt" for i in range(10)]


def test_parquet_is_divided_by_row_groups(monkeypatch):
    texts = [f"text {i} {i * 7919}" for i in range(1000)]
    pq.write_table(pa.table({"text": texts}), "a.parquet", row_group_size=50)
    monkeypatch.setattr(parts, "PART_BYTES", 3000)
    plan = plan_parts((source("a.parquet", kind="parquet"),))
    assert len(plan) > 5 and all(part.num_bytes <= 3000 for part in plan)
    found = rows(read(source("a.parquet", kind="parquet")))
    assert [row["text"] for row in found] == texts and [row["id"] for row in found] == [
        f"a.parquet#{i}" for i in range(1000)
    ]


def test_a_part_can_be_read_from_its_middle(monkeypatch):
    monkeypatch.setattr(parts, "BATCH_BYTES", 500)
    write_jsonl("a.jsonl", 100)
    (part,) = plan_parts((source("a.jsonl"),))
    whole = list(read_part(part))
    assert len(whole) > 5
    for skipped in range(len(whole) + 1):
        left = list(read_part(part, skip_batches=skipped))
        assert [(b.batch.to_pylist(), b.rejected, b.done_bytes) for b in left] == [
            (b.batch.to_pylist(), b.rejected, b.done_bytes) for b in whole[skipped:]
        ]


def test_a_part_tells_how_far_it_is():
    write_jsonl("a.jsonl", 50)
    write_jsonl("b.jsonl", 50)
    for kind in ("jsonl", "text"):
        last = read(source("*.jsonl", kind=kind))[-1]
        assert last.done_bytes == last.total_bytes == sum(path.stat().st_size for path in Path().glob("*.jsonl"))


def test_reading_stops_at_max_bytes_and_says_so(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 100)
    write_jsonl("a.jsonl", 50)
    write_jsonl("b.jsonl", 50)
    everything = rows(read(source("*.jsonl")))
    found = read(source("*.jsonl", max_bytes=1500))
    kept = rows(found)
    assert kept == everything[: len(kept)] and [d for b in found for d in b.stopped_domains] == ["web"]
    size = sum(len(row["text"]) for row in kept)
    assert size >= 1500 > size - len(kept[-1]["text"]) and len(kept) > len(everything) / 2
    assert not any(batch.stopped_domains for batch in read(source("*.jsonl", max_bytes=10**6)))


def test_another_folder_finds_the_files(tmp_path, monkeypatch):
    write_jsonl("a.jsonl", 5)
    (part,) = plan_parts((source("a.jsonl"),))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (batch,) = read_part(part)
    assert batch.batch.num_rows == 4 and batch.batch["source"][0].as_py() == "a.jsonl"


def test_the_python_environment_gives_its_domains_one_after_another():
    found = read(Source(kind="python-environment", domains=("readme", "licence"), max_bytes=20_000))
    assert [batch.batch["domain"][0].as_py() for batch in found] == ["readme", "licence"]
    assert [batch.stopped_domains for batch in found] == [("readme",), ("licence",)]
    assert all(20_000 <= batch.batch["text"].nbytes < 200_000 for batch in found)


PAGE = "<body><nav><a href='/'>Menu</a></nav><p>Page {} tells of the river and of the mill beside it.</p></body>"


def test_pages_are_read_from_files_and_from_archives():
    for i in range(3):
        Path(f"{i}.html").write_bytes(PAGE.format(i).encode("utf-16"))
    Path("3.html").write_text("<html></html>")
    found = read(source("*.html", kind="html"))
    assert [row["id"] for row in rows(found)] == ["0.html", "1.html", "2.html"] == [row["group"] for row in rows(found)]
    assert [row["text"] for row in rows(found)] == [
        f"Page {i} tells of the river and of the mill beside it." for i in range(3)
    ]
    assert [r.reason for batch in found for r in batch.rejected] == ["no text"]

    for name in ("a.warc", "b.warc"):
        records = []
        for i in range(3):
            http = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{PAGE.format(i)}"
            records.append(
                "WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2020-01-01T00:00:00Z\r\nWARC-Record-ID: <urn:x:1>\r\n"
                f"WARC-Target-URI: http://{name}/{i}\r\nContent-Type: application/http; msgtype=response\r\n"
                f"Content-Length: {len(http)}\r\n\r\n{http}\r\n\r\n"
            )
        Path(f"{name}.gz").write_bytes(b"".join(gzip.compress(record.encode()) for record in records))
    found = read(source("*.warc.gz", kind="warc", group_field="host"))
    assert [row["group"] for row in rows(found)] == ["a.warc"] * 3 + ["b.warc"] * 3
    assert [row["source"] for row in rows(found)] == ["a.warc.gz"] * 3 + ["b.warc.gz"] * 3


def test_files_that_cannot_be_read_are_named():
    Path("a.parquet").write_text("no parquet")
    with pytest.raises(InputError, match="a.parquet: not a readable Parquet file"):
        plan_parts((source("a.parquet", kind="parquet"),))
    with pytest.raises(InputError, match="b.jsonl: there is no such file"):
        plan_parts((source("b.jsonl"),))
    write_jsonl("b.jsonl", 5)
    (part,) = plan_parts((source("b.jsonl"),))
    Path("b.jsonl").unlink()
    with pytest.raises(InputError, match="b.jsonl: there is no such file"):
        list(read_part(part))


def test_a_file_name_that_is_not_unicode_is_refused():
    Path(os.fsdecode(b"caf\xe9.txt")).write_text("a text")
    Path("café.txt").write_text("a text")
    with pytest.raises(InputError, match=r"'caf\\udce9.txt': the file's name is not UTF-8; rename it"):
        plan_parts((source("*.txt", kind="text"),))
    (row,) = rows(read(source("café.txt", kind="text")))
    assert row["id"] == row["source"] == "café.txt"


def test_no_batch_comes_near_the_limits_of_a_column(monkeypatch):
    monkeypatch.setattr(parts, "BATCH_BYTES", 1 << 10)
    texts = ["x" * 300] * 50 + ["y" * 5120]
    Path("a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found = read(source("a.jsonl"))
    assert [row["text"] for row in rows(found)] == texts
    assert Counter(batch.batch.num_rows for batch in found) == {2: 25, 1: 1}
    assert all(batch.batch.schema.field("text").type == pa.large_string() for batch in found)
