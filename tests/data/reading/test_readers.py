"""Reading text files and datasets, and finding files."""

import gzip
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import InputError
from data.reading import readers
from data.reading.documents import Document, Rejected
from data.reading.filehash import FileHashes
from data.reading.readers import expand, huggingface_identity, read_huggingface, read_text
from data.reading.records import Fields
from tests.data.reading.records_of import LINE_BOUNDARIES, lines


def text_of(path: Path) -> Document | Rejected:
    return read_text(path, "name", "web", Counter())


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
    with pytest.raises(InputError, match=r"this is a folder; name its files, such as \S+/\*$"):
        expand(str(tmp_path))
    with pytest.raises(InputError, match=r"such as \S+[^/]/\*\.html$"):
        expand(f"{tmp_path}/", "*.html")


def test_a_text_file_is_a_document_and_a_group_as_it_stands(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbffirst\r\nsecond " + LINE_BOUNDARIES.encode())
    document = text_of(tmp_path / "a.txt")
    assert document == Document("name", f"first\r\nsecond {LINE_BOUNDARIES}", "web", "name", "name")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"packed"))
    assert text_of(tmp_path / "a.txt.gz").text == "packed"


def test_a_text_file_with_invalid_utf8_is_set_aside(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good \xff bad")
    assert text_of(tmp_path / "a.txt") == Rejected("name", "web", "name", "invalid UTF-8", "byte 5", 10)


def test_a_file_too_long_to_be_held_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MOST_FILE_BYTES", 1000)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"x" * 1001))
    found = text_of(tmp_path / "a.txt.gz")
    assert found.reason == "too long" and found.num_bytes == (tmp_path / "a.txt.gz").stat().st_size
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"x" * 1000))
    assert len(text_of(tmp_path / "a.txt.gz").text) == 1000


def huggingface(name: str, split: str = "train", root: Path = Path("/")) -> list[Document]:
    found = read_huggingface(
        name,
        root=root,
        subset=None,
        split=split,
        revision=None,
        fields=Fields(text="body"),
        domain="web",
        repairs=Counter(),
    )
    return list(found)


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
    for name in ("saved", "splits", "json", "parquet"):
        assert [d.text for d in huggingface(f"{tmp_path}/{name}")] == texts
    assert [d.text for d in huggingface(f"{tmp_path}/splits", "test")] == texts[:1]
    with pytest.raises(InputError, match="dataset .*split 'none'.* cannot be read"):
        huggingface(f"{tmp_path}/json", "none")
    found = huggingface("saved", root=tmp_path)
    assert [d.id for d in found] == [f"huggingface:saved#{i}" for i in range(3)]


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
