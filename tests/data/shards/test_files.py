"""A user relies on: what was written is read, by us and by Arrow's own readers; what is damaged is refused with the
file's name.
"""

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.shards.files import ShardHeader, TokenShard, write_shard
from tests.data.shards.shard_files import flipped, header, write


def documents_of(shard: TokenShard) -> list[list[int]]:
    return [shard.read()[first:end].tolist() for first, end in pairwise(shard.offsets)]


@pytest.mark.parametrize(
    ("size", "padded", "dtype"),
    [
        (32_000, 32_000, "uint16"),
        (65_536, 65_536, "uint16"),
        (65_530, 65_600, "uint32"),
        (65_537, 65_600, "uint32"),
        (100_000, 100_000, "uint32"),
    ],
)
def test_ids_survive_in_a_type_that_holds_the_padded_vocabulary(
    tmp_path: Path, size: int, padded: int, dtype: str
) -> None:
    ids = [token for token in (0, 31_999, 65_535, 65_536, 70_000, 99_999) if token < size]
    of = header(size, padded)
    shard = TokenShard(write(tmp_path / "a-00000.arrow", [ids], of), of)
    shard.check()
    assert (shard.read().dtype.name, shard.read().tolist()) == (dtype, ids)


def test_lengths_count_the_end_of_document(tmp_path: Path) -> None:
    documents = [[10, 11, 12, 2], [20, 2], [30, 31, 32, 33, 34, 2]]
    for batch_tokens in (100, 6, 1):
        shard = TokenShard(write(tmp_path / "a-00000.arrow", documents, batch_tokens=batch_tokens))
        assert np.diff(shard.offsets).tolist() == [4, 2, 6]
        assert shard.offsets[-1] == shard.num_tokens == 12
        assert documents_of(shard) == documents


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 40), max_size=30),
    batch_tokens=st.integers(1, 60),
    padded=st.sampled_from([0, 65_600]),
)
def test_record_batches_hold_whole_documents_and_stand_where_the_entries_say(
    tmp_path: Path, lengths: list[int], batch_tokens: int, padded: int
) -> None:
    of = header(600, padded)
    numbers = iter(range(sum(lengths)))
    documents = [[next(numbers) % 600 for _ in range(length)] for length in lengths]
    path = write(tmp_path / "a-00000.arrow", documents, of, batch_tokens=batch_tokens)
    shard, content = TokenShard(path, of), path.read_bytes()
    shard.check()
    entries = shard.entries()
    assert documents_of(shard) == documents and shard.ids() == [f"a-00000/{i}" for i in range(len(documents))]
    assert all(entry.num_tokens <= batch_tokens or entry.num_documents == 1 for entry in entries)
    first = 0
    for entry, following in zip(entries, [*entries[1:], None], strict=True):
        tokens = content[entry.tokens_offset :][: entry.num_tokens * of.dtype.itemsize]
        offsets = content[entry.offsets_offset :][: (entry.num_documents + 1) * 8]
        last = first + entry.num_documents
        assert np.frombuffer(tokens, of.dtype).tolist() == [t for document in documents[first:last] for t in document]
        assert np.frombuffer(offsets, np.int64).tolist() == np.cumsum([0, *lengths[first:last]]).tolist()
        assert hashlib.sha256(tokens).digest() == entry.tokens_sha256
        assert hashlib.sha256(offsets).digest() == entry.offsets_sha256
        assert entry.shard_bytes == len(content) and entry.tokens_offset % 8 == entry.offsets_offset % 8 == 0
        assert following is None or entry.num_tokens + lengths[last] > batch_tokens, "the next document had room"
        first = last
    assert first == len(documents)


def test_same_content_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    first.mkdir(), second.mkdir()
    paths = [write(folder / "a-00000.arrow", [[5, 6, 2], [2]], batch_tokens=3) for folder in (first, second)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert [path.name for path in first.iterdir()] == ["a-00000.arrow"]


def test_hugging_face_datasets_opens_a_shard(tmp_path: Path) -> None:
    import datasets

    path = write(tmp_path / "a-00000.arrow", [[5, 6, 2], [2], [599, 2]], batch_tokens=4)
    found = datasets.Dataset.from_file(str(path))
    assert found.column_names == ["id", "domain", "tokens"] and found.num_rows == 3
    assert found[2] == {"id": "a-00000/2", "domain": "prose", "tokens": [599, 2]}
    assert datasets.Dataset.from_file(str(write(tmp_path / "b-00000.arrow", []))).num_rows == 0


def test_plain_pyarrow_reads_and_checks_a_shard(tmp_path: Path) -> None:
    path = write(tmp_path / "a-00000.arrow", [[5, 6, 2], [2], [599, 2]], batch_tokens=4)
    reader = pa.ipc.open_stream(path)
    assert reader.schema.metadata[b"vocabulary_size"] == b"600"
    for expected in ([[5, 6, 2], [2]], [[599, 2]]):
        batch, metadata = reader.read_next_batch_with_custom_metadata()
        assert batch.column("tokens").to_pylist() == expected
        assert set(batch.column("domain").to_pylist()) == {"prose"}
        tokens = batch.column("tokens").values.to_numpy().tobytes()
        assert metadata[b"tokens_sha256"].decode() == hashlib.sha256(tokens).hexdigest()


def test_a_shard_takes_at_most_2_1_bytes_for_each_token(tmp_path: Path) -> None:
    path = write(
        tmp_path / "python-environment-00000.arrow", [[7] * 499 + [2]] * 4000, header(65_536), batch_tokens=1 << 19
    )
    assert path.stat().st_size <= 2.1 * 500 * 4000


def test_an_empty_shard_is_a_shard(tmp_path: Path) -> None:
    shard = TokenShard(write(tmp_path / "a-00000.arrow", []), header())
    shard.check()
    assert (shard.num_tokens, shard.ids(), shard.offsets.tolist(), shard.domain) == (0, [], [0], "prose")
    assert [entry.num_documents for entry in shard.entries()] == [0]


def test_reading_a_record_batch_copies_nothing(tmp_path: Path) -> None:
    shard = TokenShard(write(tmp_path / "a-00000.arrow", [[5] * 100]))
    assert not shard.read().flags.owndata and np.shares_memory(shard.read(), shard.batches[0])


def test_a_shard_cut_anywhere_is_refused_by_name(tmp_path: Path) -> None:
    whole = write(tmp_path / "a-00000.arrow", [[5, 6, 2]] * 50, batch_tokens=40).read_bytes()
    cut = tmp_path / "b-00000.arrow"
    for size in [*range(0, len(whole), 97), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(InputError, match="b-00000.arrow.*cut short.*pretokenize"):
            TokenShard(cut)
    with pytest.raises(InputError, match="c-00000.arrow is missing"):
        TokenShard(tmp_path / "c-00000.arrow")


def test_a_changed_token_is_found_and_its_record_batch_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a-00000.arrow", [[7, 2], [500, 501, 502, 503, 504, 2], [8, 2]], batch_tokens=6)
    TokenShard(path).check()
    content = bytearray(path.read_bytes())
    place = content.index(np.array([500, 501, 502], np.uint16).tobytes())
    for value, message in ((3, "has changed.*record batch 1: tokens"), (600, "600 in record batch 1, outside its voc")):
        content[place : place + 2] = value.to_bytes(2, "little")
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            TokenShard(path).check()


def test_a_changed_byte_is_refused_or_changes_nothing_that_is_read(tmp_path: Path) -> None:
    """Wherever it is; bytes between the buffers and parts of Arrow's headers are nothing that a reader sees."""
    documents = [[5, 6, 2], [599, 2], [2]]
    path = write(tmp_path / "a-00000.arrow", documents, batch_tokens=5)
    ids, refused = TokenShard(path).ids(), 0
    content = path.read_bytes()
    for place, changed in flipped(content):
        path.write_bytes(changed)
        try:
            shard = TokenShard(path)
            shard.check()
        except InputError as error:
            assert "a-00000.arrow" in str(error)
            refused += 1
        else:
            seen = (documents_of(shard), shard.ids(), shard.domain, shard.header)
            assert seen == (documents, ids, "prose", header()), f"byte {place}"
    assert refused > len(content) / 3


def test_ids_outside_the_vocabulary_are_never_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="outside the vocabulary"):
        write(tmp_path / "a-00000.arrow", [[600]], header(600, 640))
    with pytest.raises(AssertionError, match="not even its end"):
        write(tmp_path / "a-00000.arrow", [[5], []])
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
    with pytest.raises(InputError, match="b-00000.arrow holds .*uint32>.*need .*uint16"):
        TokenShard(other)


def test_any_arrow_file_is_not_a_shard(tmp_path: Path) -> None:
    path = tmp_path / "a-00000.arrow"
    table = pa.table({"tokens": [[1]]})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(InputError, match="not a token shard"):
        TokenShard(path)


def test_an_interrupted_write_leaves_no_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("data.shards.arrow_stream.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "a-00000.arrow", [[5]])
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_contradicts_itself_is_none() -> None:
    good = header(600, 640)
    assert ShardHeader.parse(good.metadata()) == good
    for name, value in {
        "dtype": "uint32",
        "end_id": "600",
        "vocabulary_size": "641",
        "padded_vocabulary_size": "",
    }.items():
        with pytest.raises(ValueError, match=r"cannot have|invalid literal"):
            ShardHeader.parse(good.metadata() | {name: value})
    with pytest.raises(ValueError, match="no 'end_id'"):
        ShardHeader.parse({name: value for name, value in good.metadata().items() if name != "end_id"})


def test_ids_of_any_characters_come_back(tmp_path: Path) -> None:
    ids = ["a\0b", "", "\u00e9\u4e2d", "a/b c"]
    tokens, offsets = np.full(4, 2, np.uint16), np.arange(5)
    path = tmp_path / "a-00000.arrow"
    write_shard(path, header(), ids=pa.array(ids), domain="a", tokens=tokens, offsets=offsets, batch_tokens=2)
    TokenShard(path).check()
    assert TokenShard(path).ids() == ids
