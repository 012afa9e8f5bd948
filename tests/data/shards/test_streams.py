"""A user relies on: a stream is the documents of its domain, read at any place, whatever the shards and their record
batches; opening touches no shard; a shard that is missing, cut short or changed is refused by name when it is reached.
"""

import errno
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data.errors import InputError
from data.order.packing import Pieces
from data.shards.files import ShardHeader, TokenShard, shard_name
from data.shards.index import read_index, write_index
from data.shards.streams import TokenStream, open_streams
from tests.data.shards.shard_files import header, index_folder, write

END = 2


def made(folder: Path, shards: list[tuple[str, list[list[int]]]], of: ShardHeader) -> Path:
    """Shards of (domain, documents without their ends), and the index."""
    numbers: Counter[str] = Counter()
    for domain, documents in shards:
        path = folder / shard_name(domain, numbers[domain])
        write(path, [[*document, END] for document in documents], of, domain=domain, batch_tokens=8)
        numbers[domain] += 1
    index_folder(folder)
    return folder


PROSE = [[[10, 11, 12]], [[20], []], [], [[30] * 5, [31] * 20, [32] * 2]]
FLAT = [token for shard in PROSE for document in shard for token in [*document, END]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shards = [*(("prose", shard) for shard in PROSE), ("code", [[40, 41]]), ("none", [])]
    return made(tmp_path, shards, header(600, padded=640))


def test_a_stream_is_its_documents_each_with_one_end(folder: Path) -> None:
    streams = open_streams(folder, header(600, padded=640))
    assert sorted(streams) == ["code", "prose"], "a domain without a token is no stream"
    prose = streams["prose"]
    assert len(prose) == len(FLAT) and prose.dtype == np.uint16
    for start in range(len(FLAT) + 1):
        for count in range(len(FLAT) - start + 1):
            assert prose.read(start, count).tolist() == FLAT[start : start + count]
    assert streams["code"].read(0, 3).tolist() == [40, 41, END]
    with pytest.raises(AssertionError):
        prose.read(len(FLAT) - 2, 3)


def test_documents_are_known_by_length_and_id(folder: Path) -> None:
    prose = open_streams(folder)["prose"]
    assert prose.document_lengths().tolist() == [4, 2, 1, 6, 21, 3] and prose.num_documents == 6
    assert prose.document_ids() == [
        *(f"prose-0000{shard}/{i}" for shard, count in ((0, 1), (1, 2), (3, 3)) for i in range(count))
    ]


def test_opening_touches_no_shard_and_one_that_is_missing_is_named_when_it_is_reached(folder: Path) -> None:
    (folder / shard_name("prose", 3)).unlink()
    prose = open_streams(folder)["prose"]
    assert prose.read(0, 7).tolist() == FLAT[:7]
    with pytest.raises(InputError, match=r"prose-00003.arrow is missing; run pretokenize"):
        prose.read(6, 2)
    fill(prose, [(0, 0, 7)], 7)
    with pytest.raises(InputError, match=r"prose-00003.arrow is missing"):
        fill(prose, [(0, 0, 7), (1, 7, 1)], 7)


def test_a_shard_of_another_size_is_refused_by_name(folder: Path) -> None:
    path = folder / shard_name("prose", 0)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match=r"prose-00000.arrow has \d+ bytes, but was written with \d+; delete it"):
        open_streams(folder)["prose"].read(0, 1)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOMEM])
def test_a_shard_that_cannot_be_mapped_is_refused_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def failing(path: Path) -> np.ndarray:
        raise OSError(number, "injected")

    monkeypatch.setattr("data.shards.streams.map_file", failing)
    with pytest.raises(InputError, match=r"prose-00000.arrow cannot be mapped: .*injected"):
        open_streams(folder)["prose"].read(0, 1)


def test_changed_offsets_are_found(folder: Path) -> None:
    path, index = folder / shard_name("code", 0), read_index(folder)
    flip(path, index.offsets_offset[index.domains()["code"]][0] + 8)
    with pytest.raises(InputError, match=r"code-00000.arrow has changed since .*; delete it and run pretokenize again"):
        open_streams(folder)["code"].document_lengths()


def test_changed_tokens_are_never_read(folder: Path) -> None:
    """Each bit of the tokens of one record batch; the others can be read."""
    path, index = folder / shard_name("prose", 3), read_index(folder)
    rows = index.domains()["prose"]
    row = next(row for row in range(rows.start, rows.stop) if index.shard[row] == path.name)
    here = int(index.num_tokens[rows.start : row].sum())
    for place in range(2 * index.num_tokens[row]):
        flip(path, index.tokens_offset[row] + place)
        prose = open_streams(folder)["prose"]
        for _ in range(2):
            with pytest.raises(InputError, match=r"prose-00003.arrow has changed since .*; delete it and run pretoken"):
                prose.read(here, 1)
            with pytest.raises(InputError, match=r"prose-00003.arrow has changed since"):
                fill(prose, [(0, 0, 7), (1, here, 2)], 7)
        assert prose.read(0, here).tolist() == FLAT[:here]
        end = here + int(index.num_tokens[row])
        assert prose.read(end, 3).tolist() == FLAT[end : end + 3]
        flip(path, index.tokens_offset[row] + place)


def flip(path: Path, place: int) -> None:
    """Change one bit of the byte there; done twice, the file is as it was."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << place % 8
    path.write_bytes(content)


def test_more_shards_than_may_be_mapped_are_mapped_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data.shards.streams.MAPPED_SHARDS", 3)
    monkeypatch.setattr("data.shards.streams.BLOCKS_AT_ONCE", 2)
    documents = [[number * 10 + i for i in range(number % 4)] for number in range(9)]
    flat = [token for document in documents for token in [*document, END]]
    stream = open_streams(made(tmp_path, [("a", [document]) for document in documents], header()))["a"]
    for _ in range(2):
        assert stream.document_lengths().tolist() == [len(document) + 1 for document in documents]
        for start in range(len(flat) - 1):
            assert stream.read(start, 2).tolist() == flat[start : start + 2]
            assert fill(stream, [(0, start, 2)], 2)[1].tolist() == [flat[start : start + 2]]
            maps = Path("/proc/self/maps").read_text().splitlines()
            assert 0 < sum(str(tmp_path / "a-") in line for line in maps) <= 3


def fill(stream: TokenStream, pieces: list[tuple[int, int, int]], width: int) -> tuple[np.ndarray, ...]:
    row, start, length = (np.array(column, np.int64) for column in zip(*pieces, strict=True))
    shape = (int(row.max()) + 1, width)
    inputs, targets, positions = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape, np.int32)
    stream.fill(Pieces(row=row, start=start, length=length), inputs, targets, positions, isolate=True)
    return inputs, targets, positions


def test_rows_are_filled_across_documents_batches_and_shards(folder: Path) -> None:
    prose = open_streams(folder)["prose"]
    for start in range(len(FLAT)):
        for length in range(1, len(FLAT) - start + 1):
            inputs, targets, positions = fill(prose, [(0, start, length)], length)
            assert targets[0].tolist() == FLAT[start : start + length]
            assert inputs[0].tolist() == [END, *FLAT][start : start + length]
            begins = [place for place in range(length) if place == 0 or inputs[0, place] == END]
            assert positions[0].tolist() == [place - max(b for b in begins if b <= place) for place in range(length)]


def test_ids_past_16_bits(tmp_path: Path) -> None:
    big = [65_535, 65_536, 99_999]
    stream = open_streams(made(tmp_path, [("a", [big])], header(100_000)))["a"]
    assert stream.dtype == np.uint32
    assert fill(stream, [(0, 0, 4)], 4)[1].tolist() == [[*big, END]]


def test_an_id_outside_the_vocabulary_never_reaches_a_batch(folder: Path) -> None:
    """Also an id of the padding, for which there is a row in the model."""
    path = folder / shard_name("code", 0)
    for value in (600, 639, 65_535):
        write(path, [[value, 41, END]], header(65_536), domain="code")
        write_index(folder, header(600, padded=640), TokenShard(path).entries())
        stream = open_streams(folder)["code"]
        for piece in ((0, 0, 1), (0, 1, 1)):
            with pytest.raises(InputError, match=rf"'code' hold id {value}, outside their vocabulary of 600"):
                fill(stream, [piece], 1)
        fill(stream, [(0, 2, 1)], 1)
