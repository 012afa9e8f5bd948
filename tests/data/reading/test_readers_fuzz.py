"""Ten thousand malformed records: none is lost, none crashes the reader, and good ones among them stay as they are."""

import json
import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.reading import jsonl as reader
from tests.data.reading.records_of import jsonl, parquet

NUM_RECORDS = 10_000


def bad_line(rng: random.Random) -> bytes:
    """A line of .jsonl that is not as it should be, or that a careless reader would cut."""
    text = rng.choice(
        ["plain", "é\u2028\u2029\x85", "\ud83d lone", "a\0b", "\r\n \x0b\x0c", "😀" * 5, "\ufeff", " \u3000", ""]
    )
    whole = json.dumps({"text": text, "id": rng.choice([None, 1, "x", 1.5, [], "\ud800"])}).encode()
    raw = json.dumps({"text": text}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    damaged = bytearray(whole)
    for _ in range(rng.randrange(1, 4)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    depth = rng.randrange(1, 1200)
    return rng.choice(
        [
            whole,
            raw,
            bytes(damaged),
            whole[: rng.randrange(len(whole))],
            rng.randbytes(rng.randrange(80)),
            whole + whole,
            b'{"text": ' + b"[" * depth + b"]" * depth + b"}",
            b'{"text": "deep", "x": ' + b'{"y":' * depth + b"1" + b"}" * depth + b"}",
            b'{"text": "number", "n": '
            + b"-" * rng.randrange(2)
            + b"9" * rng.choice([1, 25, 5000])
            + rng.choice([b"", b"e999", b"."])
            + b"}",
            b'{"text": "first", "text": ' + rng.choice([b'"second"', b"null", b"2"]) + b"}",
            b'{"te\\u0078t": "escaped name"}',
            b'\xef\xbb\xbf{"text": "mark"}',
            b'{"text": "nan", "n": [NaN, -Infinity]}',
            b"\xff\xfe" + whole.decode().encode("utf-16-le"),
            whole + b"\r",
            b"\t" + whole + b"  ",
            b"null",
            b'"text"',
            b"[]",
            b"{}",
            b"\0",
            b"text,id",
        ]
    ).replace(b"\n", b" ")


def good(number: int) -> dict:
    return {"text": f"Good text {number}, with \u2028 and é inside.", "id": f"good-{number}"}


@pytest.mark.parametrize("block", [4096, reader.BLOCK_BYTES])
def test_every_line_is_a_document_or_set_aside(tmp_path, monkeypatch, block):
    monkeypatch.setattr(reader, "BLOCK_BYTES", block)
    rng = random.Random(block)
    content = [bad_line(rng) for _ in range(NUM_RECORDS)]
    for number in range(0, NUM_RECORDS, 100):
        content[number] = json.dumps(good(number), ensure_ascii=bool(number % 200)).encode()
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(content))
    found = jsonl(path, id="id")
    records = sum(1 for line in content if line.strip())
    assert len(found.rows) + len(found.rejected) == records
    assert len(found.rows) > NUM_RECORDS / 10 and len(found.rejected) > NUM_RECORDS / 10 and len(found.reasons) == 5
    expected = [good(number) for number in range(0, NUM_RECORDS, 100)]
    assert [row for row in found.rows if row["id"].startswith("good-")] == [
        {"id": g["id"], "text": g["text"], "domain": "web", "group": row["group"], "source": str(path)}
        for g, row in zip(expected, [r for r in found.rows if r["id"].startswith("good-")], strict=True)
    ]
    for text in found.texts:
        assert text.strip() and "\0" not in text and text.encode()


def test_a_line_of_a_hundred_megabytes_stands_among_others(tmp_path):
    path = tmp_path / "a.jsonl"
    long = b'{"text": "' + b"long text " * 10_000_000
    with open(path, "wb") as file:
        file.write(b'{"text": "first"}\n' + long + b'"}\n')
        file.write(long + b"\n")  # cut off
        file.write(b'{"text": "last"}\n')
    found = jsonl(path)
    assert [len(text) for text in found.texts] == [5, 100_000_000, 4]
    assert [(r.reason, r.num_bytes) for r in found.rejected] == [("malformed JSON", len(long) + 1)]


def bad_bytes(rng: random.Random) -> Iterator[bytes | None]:
    while True:
        yield rng.choice(
            [
                None,
                b"",
                b" \n\t",
                rng.randbytes(rng.randrange(1, 30)),
                b"a\0b",
                b"\0",
                "é\u2028".encode(),
                b"\xed\xa0\x80",
                b"ok",
            ]
        )


def test_every_row_is_a_document_or_set_aside(tmp_path):
    values = [value for _, value in zip(range(NUM_RECORDS), bad_bytes(random.Random(5)), strict=False)]
    raw = pa.array(values, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    pq.write_table(pa.table({"text": text, "id": text}), tmp_path / "a.parquet", row_group_size=777)
    found = parquet(tmp_path / "a.parquet", id="id")
    assert len(found.rows) + len(found.rejected) == NUM_RECORDS
    assert found.texts.count("ok") == values.count(b"ok") and found.reasons["text missing"] == values.count(None)
    assert set(found.reasons) == {"text missing", "empty", "invalid UTF-8"} and set(found.repairs) == {"NUL removed"}
