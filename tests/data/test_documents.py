"""Reading sources: what becomes of each record, and that nothing goes missing unseen."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from data.documents import Document, Rejected
from data.errors import InputError
from data.filehash import FileHashes
from data.readers import Fields, expand, huggingface_identity, read_huggingface, read_jsonl, read_parquet, read_text
from data.tables import SCHEMA, batches, text_buffers


def jsonl(path: Path, **fields: str) -> tuple[list[Document], list[Rejected], Counter[str]]:
    repairs: Counter[str] = Counter()
    records = list(read_jsonl(path, Fields(**fields), "web", repairs, lambda _: None))
    return [r for r in records if isinstance(r, Document)], [r for r in records if isinstance(r, Rejected)], repairs


def parquet(path: Path, **fields: str) -> list[Document | Rejected]:
    return list(read_parquet(path, Fields(**fields), "web", Counter(), lambda _: None))


def lines(*records: object) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


LINE_BOUNDARIES = "one\u2028two\u2029three\x85four\x0bfive\x0csix\rseven"


def test_only_a_newline_ends_a_record(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"text": LINE_BOUNDARIES}, {"text": "plain"}))
    documents, rejected, repairs = jsonl(tmp_path / "a.jsonl")
    assert [d.text for d in documents] == [LINE_BOUNDARIES, "plain"] and not rejected and not repairs


def test_bad_records_are_set_aside_by_reason_and_good_ones_stay(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        lines({"text": "first"})
        + b'{"text": "\xff\xfe"}\n'
        + b'{"text": "cut off\n'
        + lines(["a list"], {"other": 1}, {"text": None}, {"text": 7}, {"text": ""}, {"text": " \n\u3000"})
        + b"[" * 100_000
        + b"\n\n   \n"
        + lines({"text": "last"})
    )
    documents, rejected, _ = jsonl(tmp_path / "a.jsonl")
    assert [d.text for d in documents] == ["first", "last"]
    assert Counter(r.reason for r in rejected) == {
        "invalid UTF-8": 1,
        "malformed JSON": 3,
        "text missing": 2,
        "text not a string": 1,
        "empty": 2,
    }
    assert [r.id for r in rejected][0] == f"{tmp_path}/a.jsonl#2" and rejected[0].num_bytes == len(
        b'{"text": "\xff\xfe"}\n'
    )


def test_lone_surrogates_and_nul_are_repaired_and_counted(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        b'{"text": "a \\ud83d b"}\n{"text": "pair \\ud83d\\ude00"}\n{"text": "x\\u0000y"}\n'
    )
    documents, rejected, repairs = jsonl(tmp_path / "a.jsonl")
    assert [d.text for d in documents] == ["a \ufffd b", "pair \U0001f600", "xy"] and not rejected
    assert repairs == {"lone surrogate replaced by U+FFFD": 1, "NUL removed": 1}


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines({"text": "first"}))
    assert jsonl(tmp_path / "a.jsonl")[0][0].text == "first"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbffirst\r\nsecond")
    assert read_text(tmp_path / "a.txt", "web", Counter()).text == "first\r\nsecond"


def test_ids_and_groups_come_from_fields_or_from_place_and_text(tmp_path):
    rows = [{"text": "same", "n": 7, "from": "x"}, {"text": "same", "n": None, "from": 3}, {"text": "other", "n": True}]
    (tmp_path / "a.jsonl").write_bytes(lines(*rows))
    documents, _, _ = jsonl(tmp_path / "a.jsonl", id="n", group="from")
    place = f"{tmp_path}/a.jsonl"
    assert [d.id for d in documents] == ["7", f"{place}#2", f"{place}#3"]
    assert [d.group for d in documents][:2] == ["x", "3"]
    plain, _, _ = jsonl(tmp_path / "a.jsonl")
    assert plain[0].group == plain[1].group != plain[2].group and plain[2].group == documents[2].group


def compress(path: Path, content: bytes) -> bytes:
    return gzip.compress(content) if path.suffix == ".gz" else zstandard.compress(content)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_compressed_files_are_read_whole_even_in_several_parts(tmp_path, name):
    path = tmp_path / name
    first, second = lines({"text": "é" * 300_000}), lines({"text": "two"}, {"text": "three"})
    path.write_bytes(compress(path, first) + compress(path, second))
    assert [len(d.text) for d in jsonl(path)[0]] == [300_000, 3, 5]


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


def test_paths_that_name_nothing_are_errors(tmp_path):
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "[1].txt").write_text("brackets")
    assert [p.name for p in expand(f"{tmp_path}/*.txt")] == ["[1].txt", "a.txt", "b.txt"]
    assert [p.name for p in expand(f"{tmp_path}/[1].txt")] == ["[1].txt"]
    with pytest.raises(InputError, match=r"\*.jsonl: no file matches this pattern"):
        expand(f"{tmp_path}/*.jsonl")
    with pytest.raises(InputError, match="none.txt: there is no such file"):
        expand(f"{tmp_path}/none.txt")
    with pytest.raises(InputError, match="this is a folder; name its files"):
        expand(str(tmp_path))


def test_a_text_file_with_invalid_utf8_is_set_aside(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good \xff bad")
    found = read_text(tmp_path / "a.txt", "web", Counter())
    assert (
        isinstance(found, Rejected)
        and found.reason == "invalid UTF-8"
        and found.detail == "byte 5"
        and found.num_bytes == 10
    )


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]
)
def test_parquet_texts_of_every_string_type(tmp_path, kind):
    pq.write_table(
        pa.table({"body": pa.array([LINE_BOUNDARIES, None, "b"]).cast(kind), "n": [5, 6, 7]}), tmp_path / "a.parquet"
    )
    first, second, third = parquet(tmp_path / "a.parquet", text="body", id="n")
    assert (first.text, third.text) == (LINE_BOUNDARIES, "b") and second.reason == "text missing" and third.id == "7"


def test_parquet_strings_that_are_not_utf8_are_set_aside(tmp_path):
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"good"]).buffers())
    pq.write_table(pa.table({"text": bad}), tmp_path / "a.parquet")
    first, second = parquet(tmp_path / "a.parquet")
    assert first.reason == "invalid UTF-8" and second.text == "good"


def test_parquet_files_that_do_not_fit_are_errors(tmp_path):
    pq.write_table(pa.table({"content": ["a"], "n": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="no column 'text'; it has content, n"):
        parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="column 'n' holds int64, not text"):
        parquet(tmp_path / "a.parquet", text="n")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(InputError, match="b.parquet: not a readable Parquet file"):
        parquet(tmp_path / "b.parquet")


def huggingface(name: Path, split: str = "train") -> list[str]:
    found = read_huggingface(
        str(name),
        subset=None,
        split=split,
        revision=None,
        fields=Fields(text="body"),
        domain="web",
        repairs=Counter(),
        progress=lambda _: None,
    )
    return [d.text for d in found]


def test_local_datasets_are_read_as_saved_and_as_data_files(tmp_path):
    import datasets

    texts = ["first", LINE_BOUNDARIES, "third"]
    dataset = datasets.Dataset.from_dict({"body": texts})
    dataset.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": dataset, "test": dataset.select([0])}).save_to_disk(tmp_path / "splits")
    (tmp_path / "json").mkdir()
    (tmp_path / "json/train.jsonl").write_bytes(lines(*[{"body": text} for text in texts]))
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.table({"body": texts}), tmp_path / "parquet/train.parquet")
    assert huggingface(tmp_path / "saved") == huggingface(tmp_path / "splits") == texts
    assert huggingface(tmp_path / "splits", "test") == texts[:1]
    assert huggingface(tmp_path / "json") == huggingface(tmp_path / "parquet") == texts
    with pytest.raises(InputError, match="dataset .*split 'none'.* cannot be read"):
        huggingface(tmp_path / "json", "none")


def test_a_dataset_is_known_by_its_files_or_its_commit(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/train.jsonl").write_text("one")

    def identity(name: str, revision: str | None = None) -> dict:
        return huggingface_identity(name, revision, FileHashes(tmp_path / "cache.json"))

    before = identity(f"{tmp_path}/d")
    assert list(before["files"]) == ["train.jsonl"] and before == identity(f"{tmp_path}/d")
    (tmp_path / "d/train.jsonl").write_text("two")
    assert identity(f"{tmp_path}/d") != before
    assert identity("someone/something", "0123456789" * 4) == {"commit": "0123456789" * 4}
    with pytest.raises(InputError, match="'no such name at all' is no folder here and cannot be looked up"):
        identity("no such name at all")


def test_batches_are_bounded_in_order_and_hold_64_bit_offsets():
    texts = ["é" * 150] * 50 + ["x" * 5120] + ["last"]
    documents = [Document(str(i), text, "ab"[i % 2], "g", "s") for i, text in enumerate(texts)]
    found = list(batches(documents, batch_bytes=1024))
    assert all(batch.schema == SCHEMA and batch.schema.field("text").type == pa.large_string() for batch in found)
    assert max(batch.num_rows for batch in found) <= 4 and len(found) > 12
    for domain in "ab":
        rows = [row for batch in found for row in batch.to_pylist() if row["domain"] == domain]
        assert [row["text"] for row in rows] == [d.text for d in documents if d.domain == domain]
    assert all(len(set(batch.column("domain").to_pylist())) == 1 for batch in found)


def test_text_buffers_of_a_slice_point_into_the_same_bytes():
    values, offsets = text_buffers(pa.array(["ab", "", "çd", "e"], pa.large_string()).slice(1, 2))
    assert [bytes(values[a:b]).decode() for a, b in zip(offsets[:-1], offsets[1:], strict=True)] == ["", "çd"]
    assert text_buffers(pa.array([], pa.large_string()))[1].tolist() == [0]
