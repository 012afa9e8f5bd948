"""Pieces: joined and cut into batches, stopped at a size, and nothing of them is lost."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from data.reading.documents import Document, Rejected
from data.reading.pieces import Piece, batches, collect, table_of, until
from data.reading.tables import SCHEMA, text_buffers
from tests.data.reading.records_of import held


def record(number: int, text: str | None = None, domain: str = "a") -> Document | Rejected:
    if text is None:
        return Rejected(str(number), domain, "s", "bad", "", 1)
    return Document(str(number), text, domain, "g", "s")


def pieces(records: list[Document | Rejected], size: int) -> list[Piece]:
    """Of `size` records each, and of one domain."""
    cut = [records[i : i + size] for i in range(0, len(records), size)]
    return [piece for part in cut for piece in collect(((r, 0) for r in part), Counter())]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_batches_are_bounded_and_hold_64_bit_offsets_and_every_record_in_order(size):
    rng = random.Random(size)
    records = [
        record(i, rng.choice([None, "é" * rng.randrange(1, 150), "x" * 5120 if i == 20 else "y"])) for i in range(80)
    ]
    found = list(batches(pieces(records, size), batch_bytes=1024))
    for piece in found:
        assert piece.documents.schema == SCHEMA and SCHEMA.field("text").type == pa.large_string()
        assert piece.documents.num_rows < 2 or sum(len(t.as_py().encode()) for t in piece.documents["text"]) <= 1024
    assert len(found) >= 5
    whole = held(found)
    assert [row["id"] for row in whole.rows] == [r.id for r in records if isinstance(r, Document)]
    assert whole.rejected == [r for r in records if isinstance(r, Rejected)]
    # A note stands before the same document, wherever the batches end.
    merged = [
        entry
        for piece in found
        for entry in sorted(
            [(at, 0, note.id) for at, note in piece.notes]
            + [(i, 1, n.as_py()) for i, n in enumerate(piece.documents["id"])]
        )
    ]
    assert [name for _, _, name in merged] == [r.id for r in records]


def test_a_batch_is_of_one_domain():
    records = [record(i, "text", domain) for i, domain in enumerate("aabbba")]
    by_domain = [records[:2], records[2:5], records[5:]]
    found = list(batches((piece for part in by_domain for piece in pieces(part, 1)), 1000))
    assert [piece.domain for piece in found] == ["a", "b", "a"] and [p.documents.num_rows for p in found] == [2, 3, 1]


def test_small_pieces_are_joined_and_large_ones_are_not_copied():
    large = Piece(documents=table_of([Document(str(i), "x" * 60, "a", "g", "s") for i in range(10)]))
    (only,) = batches([large], batch_bytes=1000)
    assert only.documents["text"].buffers()[2].address == large.documents["text"].buffers()[2].address
    assert len(list(batches([large] * 3, batch_bytes=1000))) == 3
    assert len(list(batches([large] * 3, batch_bytes=1500))) == 2


def test_records_alone_that_were_set_aside_are_a_batch():
    (only,) = batches(pieces([record(1), record(2)], 1), 1000)
    assert only.documents.num_rows == 0 and [r.id for r in only.rejected] == ["1", "2"] and only.domain is None


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_reading_stops_with_the_document_that_brings_enough(size):
    records = [record(0, "12345"), record(1), record(2, "678"), record(3), record(4, "90"), record(5), record(6, "x")]
    for most, kept, left, stopped in (
        (1, [0], 0, True),
        (8, [0, 2], 1, True),
        (9, [0, 2, 4], 2, True),
        (12, [0, 2, 4, 6], 3, False),
    ):
        found = list(until(pieces(records, size), most))
        whole = held(found)
        assert [row["id"] for row in whole.rows] == [str(i) for i in kept]
        assert len(whole.rejected) == left and [p.stopped for p in found if p.stopped] == [True] * stopped


def test_repairs_are_counted_with_the_record_that_follows_or_at_the_end():
    repairs: Counter[str] = Counter()

    def coming():
        repairs["first"] += 1
        yield record(0, "a"), 3
        repairs["second"] += 2
        yield record(1), 5
        repairs["last"] += 1

    (piece,) = collect(coming(), repairs)
    assert piece.repairs == {"first": 1, "second": 2, "last": 1} and piece.done_bytes == 5 and not repairs
    assert [at for at, _ in piece.notes] == [0, 1, 1, 1, 1]


def test_text_buffers_of_a_slice_point_into_the_same_bytes():
    values, offsets = text_buffers(pa.array(["ab", "", "çd", "e"], pa.large_string()).slice(1, 2))
    assert [bytes(values[a:b]).decode() for a, b in zip(offsets[:-1], offsets[1:], strict=True)] == ["", "çd"]
    assert text_buffers(pa.array([], pa.large_string()))[1].tolist() == [0]
