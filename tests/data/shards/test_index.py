"""The index says of every record batch where it stands, and is refused if it cannot be trusted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data.errors import InputError
from data.shards.files import BatchEntry, TokenShard, shard_name
from data.shards.index import FILE, ShardIndex, read_index, write_index
from tests.data.shards.shard_files import flipped, header, index_folder, write


def entry(domain: str, number: int, num_tokens: int = 3) -> BatchEntry:
    return BatchEntry(
        domain=domain,
        shard=shard_name(domain, number),
        shard_bytes=1000,
        num_documents=1,
        num_tokens=num_tokens,
        tokens_offset=400,
        tokens_sha256=bytes([num_tokens] * 32),
        offsets_offset=600,
        offsets_sha256=bytes([number % 256] * 32),
    )


def rows(index: ShardIndex) -> list[BatchEntry]:
    """The index's rows as they went in."""
    return [
        BatchEntry(
            domain=index.domain[i],
            shard=index.shard[i],
            shard_bytes=int(index.shard_bytes[i]),
            num_documents=int(index.num_documents[i]),
            num_tokens=int(index.num_tokens[i]),
            tokens_offset=int(index.tokens_offset[i]),
            tokens_sha256=index.tokens_sha256[i],
            offsets_offset=int(index.offsets_offset[i]),
            offsets_sha256=index.offsets_sha256[i],
        )
        for i in range(len(index))
    ]


def test_every_record_batch_can_be_read_through_the_index_alone(tmp_path: Path) -> None:
    stored: dict[str, list[int]] = {"code": [], "two-part name": [], "prose": []}
    for number, (domain, tokens) in enumerate(stored.items()):
        for shard in range(number + 1):
            documents = [[100 * number + 10 * shard + i, 2] for i in range(5)]
            write(tmp_path / shard_name(domain, shard), documents, domain=domain, batch_tokens=4)
            tokens.extend(token for document in documents for token in document)
    write(tmp_path / shard_name("empty", 0), [], domain="empty")
    index_folder(tmp_path)
    index = read_index(tmp_path, header())
    assert list(index.domains()) == ["code", "prose", "two-part name"], "a domain without a document is not there"
    for domain, where in index.domains().items():
        found = []
        for row in range(where.start, where.stop):
            content = (tmp_path / index.shard[row]).read_bytes()
            assert len(content) == index.shard_bytes[row]
            place = index.tokens_offset[row]
            found.extend(np.frombuffer(content[place:], np.uint16, index.num_tokens[row]).tolist())
        assert found == stored[domain]
    assert index.header == header()


def test_rows_are_in_the_order_of_domains_shards_and_batches(tmp_path: Path) -> None:
    wanted = [entry("a", 99_999), entry("a", 100_000, 1), entry("a", 100_000, 2), entry("a-b", 0), entry("b", 2)]
    write_index(tmp_path, header(), [wanted[4], wanted[1], wanted[2], wanted[3], wanted[0]])
    found = read_index(tmp_path)
    assert rows(found) == wanted
    assert found.domains() == {"a": slice(0, 3), "a-b": slice(3, 4), "b": slice(4, 5)}


def test_an_index_without_a_row_is_an_index(tmp_path: Path) -> None:
    write_index(tmp_path, header(), [])
    assert (len(read_index(tmp_path)), read_index(tmp_path).domains()) == (0, {})


def test_the_same_entries_give_the_same_bytes_and_nothing_else_stays(tmp_path: Path) -> None:
    write_index(tmp_path, header(), [entry("b", 1), entry("a", 0)])
    first = (tmp_path / FILE).read_bytes()
    write_index(tmp_path, header(), [entry("a", 0), entry("b", 1)])
    assert (tmp_path / FILE).read_bytes() == first and [path.name for path in tmp_path.iterdir()] == [FILE]


def test_an_entry_outside_its_file_is_never_written(tmp_path: Path) -> None:
    for wrong in ({"tokens_offset": -8}, {"tokens_offset": 995}, {"offsets_offset": 985}):
        with pytest.raises(AssertionError, match="its file"):
            write_index(tmp_path, header(), [replace(entry("a", 0), **wrong)])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_index_or_one_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"index.arrow is missing; run pretokenize"):
        read_index(tmp_path)
    write_index(tmp_path, header(), [entry("a", 0)])
    with pytest.raises(InputError, match="vocabulary_size=600.*vocabulary_size=700"):
        read_index(tmp_path, header(700))
    (tmp_path / FILE).write_bytes(write(tmp_path / "a-00000.arrow", [[2]]).read_bytes())
    with pytest.raises(InputError, match="not an index"):
        read_index(tmp_path)


def test_a_cut_or_changed_index_is_refused_or_says_the_same(tmp_path: Path) -> None:
    wanted = [entry("a", 0), entry("b", 1)]
    write_index(tmp_path, header(), wanted)
    path, refused = tmp_path / FILE, 0
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 89), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="index.arrow.*cut short.*pretokenize"):
            read_index(tmp_path)
    for place, changed in flipped(whole):
        path.write_bytes(changed)
        try:
            found = read_index(tmp_path)
        except InputError as error:
            assert "index.arrow" in str(error)
            refused += 1
        else:
            assert (rows(found), found.header) == (wanted, header()), f"byte {place}"
    assert refused > len(whole) / 3


def test_any_arrow_reader_opens_it(tmp_path: Path) -> None:
    write(tmp_path / "a-00000.arrow", [[5, 6, 2], [2]], domain="a")
    index_folder(tmp_path)
    (row,) = pa.ipc.open_stream(tmp_path / FILE).read_all().to_pylist()
    (expected,) = TokenShard(tmp_path / "a-00000.arrow").entries()
    assert BatchEntry(**row) == expected
