"""Reading .jsonl: what becomes of each line, and that ranges of a file give what the whole gives."""

import gzip
import json
import random
from pathlib import Path

import pytest
import zstandard

from data.errors import InputError
from data.reading import jsonl as reader
from tests.data.reading.records_of import LINE_BOUNDARIES, jsonl, lines


def test_only_a_newline_ends_a_record(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"text": LINE_BOUNDARIES}, {"text": "plain"}))
    found = jsonl(tmp_path / "a.jsonl")
    assert found.texts == [LINE_BOUNDARIES, "plain"] and not found.rejected and not found.repairs


def test_lines_may_end_as_on_windows_and_the_last_not_at_all(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "one\\r\\n"}\r\n\r\n{"text": "two"}\r\n{"text": "three"}')
    found = jsonl(tmp_path / "a.jsonl")
    assert found.texts == ["one\r\n", "two", "three"] and not found.rejected
    assert [row["id"].rpartition("#")[2] for row in found.rows] == ["1", "3", "4"]


def test_bad_records_are_set_aside_by_reason_and_good_ones_stay(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        lines({"text": "first"})
        + b'{"text": "\xff\xfe"}\n'
        + b'{"text": "cut off\n'
        + lines(["a list"], {"other": 1}, {"text": None}, {"text": 7}, {"text": ""}, {"text": " \n\u3000"})
        + b"[" * 100_000
        + b"\n\n   \n"
        + b'{"text": "deep", "x": '
        + b"[" * 700
        + b"]" * 700
        + b"}\n"
        + lines({"text": "last"})
    )
    found = jsonl(tmp_path / "a.jsonl")
    assert found.texts == ["first", "last"]
    assert found.reasons == {
        "invalid UTF-8": 1,
        "malformed JSON": 4,
        "text missing": 2,
        "text not a string": 1,
        "empty": 2,
    }
    first = found.rejected[0]
    assert first.id == f"{tmp_path}/a.jsonl#2" and first.num_bytes == len(b'{"text": "\xff\xfe"}\n')


def test_lone_surrogates_and_nul_are_repaired_and_counted(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        b'{"text": "a \\ud83d b"}\n{"text": "pair \\ud83d\\ude00"}\n{"text": "x\\u0000y"}\n'
    )
    found = jsonl(tmp_path / "a.jsonl")
    assert found.texts == ["a \ufffd b", "pair \U0001f600", "xy"] and not found.rejected
    assert found.repairs == {"lone surrogate replaced by U+FFFD": 1, "NUL removed": 1}


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines({"text": "first"}, {"text": "\ufeffsecond"}))
    assert jsonl(tmp_path / "a.jsonl").texts == ["first", "\ufeffsecond"]
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf")
    assert not jsonl(tmp_path / "a.jsonl").rows


def test_ids_and_groups_come_from_fields_or_from_place_and_text(tmp_path):
    rows = [{"text": "same", "n": 7, "from": "x"}, {"text": "same", "n": None, "from": 3}, {"text": "other", "n": True}]
    (tmp_path / "a.jsonl").write_bytes(lines(*rows, {"text": "other", "n": "\0"}))
    found = jsonl(tmp_path / "a.jsonl", id="n", group="from").rows
    place = f"{tmp_path}/a.jsonl"
    assert [row["id"] for row in found] == ["7", f"{place}#2", f"{place}#3", f"{place}#4"]
    assert [row["group"] for row in found][:2] == ["x", "3"]
    plain = jsonl(tmp_path / "a.jsonl").rows
    assert plain[0]["group"] == plain[1]["group"] != plain[2]["group"] == found[2]["group"] == found[3]["group"]


def test_a_repaired_text_shares_the_group_of_its_equal(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "ab"}\n{"text": "a\\u0000b"}\n')
    first, second = jsonl(tmp_path / "a.jsonl").rows
    assert first["group"] == second["group"]


def compress(path: Path, content: bytes) -> bytes:
    return gzip.compress(content) if path.suffix == ".gz" else zstandard.compress(content)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_compressed_files_are_read_whole_even_in_several_parts(tmp_path, name):
    path = tmp_path / name
    first, second = lines({"text": "é" * 300_000}), lines({"text": "two"}, {"text": "three"})
    path.write_bytes(compress(path, first) + compress(path, second))
    assert [len(text) for text in jsonl(path).texts] == [300_000, 3, 5]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
@pytest.mark.parametrize("kept", [0, 1, 20, -1, -5])
def test_a_cut_off_archive_is_an_error_and_not_a_shorter_file(tmp_path, name, kept):
    path = tmp_path / name
    content = b"".join(lines({"text": f"record {i} " + "x" * (i % 71)}) for i in range(2000))
    path.write_bytes(compress(path, content)[:kept])
    with pytest.raises(InputError, match=f"{name}: the file is cut off or damaged .*write it again"):
        jsonl(path)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_damaged_archive_is_an_error(tmp_path, name):
    path = tmp_path / name
    whole = (
        bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"text " * 9999))
        if name.endswith("zst")
        else bytearray(gzip.compress(b"text " * 9999))
    )
    whole[-3] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(InputError, match="cut off or damaged"):
        jsonl(path)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("block", [1, 7, 64, 4096])
def test_ranges_of_a_file_give_what_the_whole_gives(tmp_path, monkeypatch, seed, block):
    rng = random.Random(seed)
    pool = [
        b'{"text": "%s"}',
        b'{"text": "\\u0000%s"}',
        b"%s",
        b"",
        b'  {"text": "\xc3\xa9 %s"} ',
        b'{"text": 1, "x": "%s"}',
    ]
    path = tmp_path / "a.jsonl"
    content = b"\n".join(rng.choice(pool).replace(b"%s", b"x" * rng.randrange(40)) for _ in range(60))
    path.write_bytes((b"\xef\xbb\xbf" if seed == 1 else b"") + content + (b"\n" if seed % 2 else b""))
    whole = jsonl(path)
    assert len(whole.rows) > 10 and len(whole.rejected) > 5
    monkeypatch.setattr(reader, "BLOCK_BYTES", block)
    monkeypatch.setattr(reader, "COUNTED_BYTES", 50)
    size = path.stat().st_size
    cuts = sorted({0, size, *(rng.randrange(size) for _ in range(9)), *(content.index(b"\n") + i for i in (0, 1, 2))})
    parts = [jsonl(path, begin, end) for begin, end in zip(cuts[:-1], cuts[1:], strict=True)]
    assert [row for part in parts for row in part.rows] == whole.rows
    assert [record for part in parts for record in part.rejected] == whole.rejected
    assert sum((part.repairs for part in parts), start=type(whole.repairs)()) == whole.repairs


@pytest.mark.parametrize("block", [16, 1 << 20])
def test_a_line_too_long_to_be_held_is_set_aside_and_the_rest_goes_on(tmp_path, monkeypatch, block):
    monkeypatch.setattr(reader, "BLOCK_BYTES", block)
    monkeypatch.setattr(reader, "MOST_LINE_BYTES", 1000)
    path = tmp_path / "a.jsonl"
    long = lines({"text": "x" * (3 << 20)})
    path.write_bytes(lines({"text": "first"}) + long + lines({"text": "last"}) + long[:-1])
    found = jsonl(path)
    assert found.texts == ["first", "last"] and found.reasons == {"too long": 2}
    assert [record.num_bytes for record in found.rejected] == [len(long), len(long) - 1]
    assert [record.id.rpartition("#")[2] for record in found.rejected] == ["2", "4"]


def test_a_line_of_many_megabytes_is_a_document(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines({"text": "short"}, {"text": "long \n" * 2_000_000}, {"text": "short"}))
    assert [len(text) for text in jsonl(path).texts] == [5, 12_000_000, 5]


def test_numbers_and_names_that_python_reads_are_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"text": "a", "n": 1' + b"0" * 400 + b', "id": "one", "id": "two"}\n'
        b'{"text": "b", "n": NaN, "id": 12345678901234567890}\n'
        b'{"text": "c", "n": 1' + b"0" * 5000 + b"}\n"
    )
    found = jsonl(path, id="id")
    assert [(row["id"], row["text"]) for row in found.rows] == [("two", "a"), ("12345678901234567890", "b")]
    assert found.reasons == {"malformed JSON": 1}


def test_every_unusual_line_stands_in_its_place(tmp_path):
    path = tmp_path / "a.jsonl"
    records = [{"text": f"text {i}" + ("\0" if i % 3 == 0 else "")} if i % 5 else {"no": i} for i in range(200)]
    path.write_bytes("".join(json.dumps(record) + "\n" for record in records).encode())
    found = jsonl(path)
    assert found.texts == [record["text"].strip("\0") for record in records if "text" in record]
    assert len(found.rejected) == 40 and found.repairs == {"NUL removed": 53}


def test_a_zstandard_file_is_decompressed_in_pieces_that_memory_holds(tmp_path):
    import tracemalloc

    import zstandard

    from data.reading.compressed import open_stream

    path = tmp_path / "a.zst"
    path.write_bytes(zstandard.compress(bytes(1 << 20)) * 600)
    tracemalloc.start()
    with open_stream(path) as (stream, _):
        size = 0
        while block := stream.read(1 << 20):
            size += len(block)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 600 << 20 and most < 200 << 20
