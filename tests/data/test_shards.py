"""A user relies on: what was written is read, across the borders of shards and in Arrow's own readers; damage is
refused with the file's name.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data.errors import InputError
from data.shards import ShardHeader, TokenShard, TokenStream, open_shards, open_streams, shard_name, write_shard
from data.vocabulary import END_ID
from tests.data.texts import AWKWARD, vocabulary


def header(size: int = 600) -> ShardHeader:
    return ShardHeader(vocabulary_size=size, end_id=END_ID, vocabulary_digest="d")


def write(path: Path, documents: list[list[int]], size: int = 600) -> Path:
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    tokens = np.array([token for document in documents for token in document], dtype=header(size).dtype)
    ids = pa.array([f"{path.stem}/{i}" for i in range(len(documents))], pa.string())
    write_shard(path, header(size), ids=ids, domain="prose", tokens=tokens, offsets=offsets)
    return path


@pytest.mark.parametrize(
    ("size", "dtype"), [(32_000, "uint16"), (65_536, "uint16"), (65_537, "uint32"), (100_000, "uint32")]
)
def test_ids_survive_in_a_type_that_holds_them(tmp_path: Path, size: int, dtype: str) -> None:
    ids = [token for token in (0, 31_999, 65_535, 65_536, 70_000, 99_999) if token < size]
    shard = TokenShard(write(tmp_path / "a-00000.arrow", [ids], size), header(size))
    shard.check()
    assert shard.header.dtype.name == dtype and shard.read().tolist() == ids


def test_lengths_count_the_end_of_document(tmp_path: Path) -> None:
    texts = [*AWKWARD, "last"]
    tokens, offsets = vocabulary().encode_documents(texts)
    ids = pa.array([str(i) for i in range(len(texts))])
    path = tmp_path / "a-00000.arrow"
    write_shard(path, header(), ids=ids, domain="a", tokens=tokens, offsets=offsets)
    shard = TokenShard(path)
    assert np.array_equal(np.diff(shard.offsets), [len(vocabulary().encode(text)) + 1 for text in texts])
    assert shard.num_tokens == shard.offsets[-1] and len(shard.ids()) == len(texts)
    assert [vocabulary().decode(shard.read()[first:end]) for first, end in pairwise(shard.offsets)] == texts
    assert shard.ids() == ids.to_pylist()


def test_same_content_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    first.mkdir(), second.mkdir()
    paths = [write(folder / "a-00000.arrow", [[5, 6, 2], [2]]) for folder in (first, second)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert [path.name for path in first.iterdir()] == ["a-00000.arrow"]


def test_hugging_face_datasets_opens_a_shard(tmp_path: Path) -> None:
    import datasets

    path = write(tmp_path / "a-00000.arrow", [[5, 6, 2], [2], [599, 2]])
    found = datasets.Dataset.from_file(str(path))
    assert found.column_names == ["id", "domain", "tokens"] and found.num_rows == 3
    assert found[2] == {"id": "a-00000/2", "domain": "prose", "tokens": [599, 2]}


def test_stream_reads_across_borders(tmp_path: Path) -> None:
    lengths = [1, 0, 7, 3, 11]
    stored = iter(range(3, 600))
    for number, length in enumerate(lengths):
        write(tmp_path / shard_name("prose", number), [[next(stored) for _ in range(length)]])
    stream = open_streams(tmp_path)["prose"]
    flat = np.arange(3, 3 + sum(lengths))
    assert len(stream) == len(flat)
    for start in range(len(flat) + 1):
        for count in range(len(flat) - start + 1):
            assert np.array_equal(stream.read(start, count), flat[start : start + count])
    with pytest.raises(AssertionError):
        stream.read(20, 3)


def test_a_read_inside_one_shard_copies_nothing(tmp_path: Path) -> None:
    stream = TokenStream([TokenShard(write(tmp_path / "a-00000.arrow", [[5] * 100]))])
    part = stream.read(10, 50)
    assert not part.flags.owndata and np.shares_memory(part, stream.read(0, 100))


@pytest.mark.parametrize(("tokens", "expected"), [(0, 0), (1, 0), (4, 0), (5, 1), (8, 1), (9, 2)])
def test_number_of_sequences(tmp_path: Path, tokens: int, expected: int) -> None:
    stream = TokenStream([TokenShard(write(tmp_path / "a-00000.arrow", [[7] * tokens]))])
    assert stream.num_sequences(4) == expected


def test_a_shard_cut_anywhere_is_refused_by_name(tmp_path: Path) -> None:
    whole = write(tmp_path / "a-00000.arrow", [[5, 6, 2]] * 50).read_bytes()
    cut = tmp_path / "b-00000.arrow"
    for size in [*range(0, len(whole), 97), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(InputError, match="b-00000.arrow.*cut short.*pretokenize"):
            TokenShard(cut)
    with pytest.raises(InputError, match="c-00000.arrow is missing"):
        TokenShard(tmp_path / "c-00000.arrow")


def test_a_changed_token_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a-00000.arrow", [[500, 501, 502, 503, 504, 2]])
    TokenShard(path).check()
    content = bytearray(path.read_bytes())
    place = content.index(np.array([500, 501, 502], np.uint16).tobytes())
    for value, message in ((3, "has changed"), (600, "outside its vocabulary")):
        content[place : place + 2] = value.to_bytes(2, "little")
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            TokenShard(path).check()


def test_ids_outside_the_vocabulary_are_never_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="outside the vocabulary"):
        write(tmp_path / "a-00000.arrow", [[600]])
    assert list(tmp_path.iterdir()) == []


def test_another_storage_type_or_vocabulary_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a-00000.arrow", [[5, 2]])
    with pytest.raises(InputError, match="vocabulary_size=600.*vocabulary_size=700"):
        TokenShard(path, header(700))
    table = pa.ipc.open_stream(path).read_all()
    wide = table.set_column(2, "tokens", table["tokens"].cast(pa.large_list(pa.uint32())))
    other = tmp_path / "b-00000.arrow"
    with pa.ipc.new_stream(str(other), wide.schema.with_metadata(table.schema.metadata)) as writer:
        writer.write_table(wide)
    with pytest.raises(InputError, match="b-00000.arrow holds large_list<.*uint32>.*need uint16"):
        TokenShard(other)


def test_any_arrow_file_is_not_a_shard(tmp_path: Path) -> None:
    path = tmp_path / "a-00000.arrow"
    table = pa.table({"tokens": [[1]]})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(InputError, match="not a token shard"):
        TokenShard(path)


def test_a_missing_shard_in_between_is_named(tmp_path: Path) -> None:
    for number in (0, 1, 2):
        write(tmp_path / shard_name("two-part name", number), [[number + 3]])
    assert {domain: len(shards) for domain, shards in open_shards(tmp_path).items()} == {"two-part name": 3}
    (tmp_path / shard_name("two-part name", 1)).unlink()
    with pytest.raises(InputError, match="two-part name-00001.arrow is missing"):
        open_shards(tmp_path)


def test_an_interrupted_write_leaves_no_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("data.shards.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "a-00000.arrow", [[5]])
    assert list(tmp_path.iterdir()) == []
