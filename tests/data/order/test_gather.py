"""The kernels against plain Python: the same rows, whatever the blocks, the pieces and the ids."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.order.gather import IGNORE, NOT_OPEN, block_of, fill_rows, touched_blocks

END = 2


class Blocks:
    """A stream in blocks of memory, some of them far from one another."""

    def __init__(self, tokens: np.ndarray, lengths: list[int]) -> None:
        borders = np.cumsum([0, *lengths])
        self.starts, self.ends = borders[:-1].copy(), borders[1:].copy()
        self.parts = [tokens[a:b].copy() for a, b in zip(self.starts, self.ends, strict=True)]
        self.addresses = np.array([part.ctypes.data for part in self.parts], np.uint64)
        self.like = np.empty(0, tokens.dtype)

    def fill(self, pieces: list[tuple[int, int, int]], shape: tuple[int, int], isolate: bool) -> tuple:
        inputs, targets = np.full(shape, 77, np.int64), np.full(shape, 77, np.int64)
        positions = np.full(shape, 77, np.int32)
        row, start, length = (np.array(column, np.int64) for column in zip(*pieces, strict=True))
        largest = fill_rows(
            self.starts,
            self.ends,
            self.addresses,
            self.like,
            row,
            start,
            length,
            END,
            isolate,
            inputs,
            targets,
            positions,
        )
        return inputs, targets, positions, largest


def by_hand(tokens: list[int], pieces: list[tuple[int, int, int]], shape: tuple[int, int], isolate: bool) -> tuple:
    """What a batch is, one token after the other."""
    inputs, targets, positions = np.full(shape, 77), np.full(shape, 77), np.full(shape, 77)
    largest = 0
    for row in {row for row, _, _ in pieces}:
        found: list[tuple[int, int, int]] = []
        for start, length in [(start, length) for other, start, length in pieces if other == row]:
            position = 0
            for place in range(start, start + length):
                token = tokens[place - 1] if place else END
                if token == END or place == start:
                    position = 0
                found.append((token, tokens[place], position if isolate else len(found)))
                position += 1
                largest = max(largest, token if place else 0, tokens[place])
        found += [(END, IGNORE, 0)] * (shape[1] - len(found))
        inputs[row], targets[row], positions[row] = zip(*found, strict=True)
    return inputs, targets, positions, largest


@st.composite
def batches(draw: st.DrawFn) -> tuple:
    lengths = draw(st.lists(st.integers(1, 90), min_size=1, max_size=6))
    dtype, top = draw(st.sampled_from([(np.uint16, 65_535), (np.uint32, 100_000)]))
    size = sum(lengths)
    tokens = draw(st.lists(st.sampled_from([END, 0, 1, 5, 6, 7, top]), min_size=size, max_size=size))
    width = draw(st.integers(1, 200))
    pieces = []
    for row in draw(st.permutations(range(4)))[: draw(st.integers(1, 4))]:
        room = width
        for _ in range(draw(st.integers(1, 4))):
            if room:
                start = draw(st.integers(0, size - 1))
                length = draw(st.integers(1, min(room, size - start)))
                pieces.append((row, start, length))
                room -= length
    return np.array(tokens, dtype), lengths, pieces, (4, width)


@given(batches(), st.booleans())
def test_rows_are_those_of_plain_python(made: tuple, isolate: bool) -> None:
    tokens, lengths, pieces, shape = made
    blocks = Blocks(tokens, lengths)
    *arrays, largest = blocks.fill(pieces, shape, isolate)
    *expected, expected_largest = by_hand(tokens.tolist(), pieces, shape, isolate)
    for name, found, wanted in zip(("inputs", "targets", "positions"), arrays, expected, strict=True):
        assert np.array_equal(found, wanted), name
    assert largest == expected_largest


@given(batches())
def test_touched_blocks_are_those_that_are_read_and_no_other(made: tuple) -> None:
    """Every other block has no address, and stands in no table: to read it would be wrong, or the end."""
    tokens, lengths, pieces, shape = made
    blocks = Blocks(tokens, lengths)
    wanted = blocks.fill(pieces, shape, True)
    _, start, length = (np.array(column, np.int64) for column in zip(*pieces, strict=True))
    touched = np.unique(touched_blocks(blocks.starts, blocks.ends, start, length))
    expected = {
        int(np.searchsorted(blocks.ends, place, side="right"))
        for _, first, count in pieces
        for place in range(max(first - 1, 0), first + count)
    }
    assert set(touched.tolist()) == expected
    blocks.starts, blocks.ends, blocks.addresses = (
        column[touched] for column in (blocks.starts, blocks.ends, blocks.addresses)
    )
    for found, before in zip(blocks.fill(pieces, shape, True), wanted, strict=True):
        assert np.array_equal(found, before)


def test_a_document_is_seen_as_evaluation_sees_it() -> None:
    """After the end of the document before it, from position 0; its own end is a target and no input of its own."""
    stream = np.array([10, 11, END, 20, END, 30, 31, 32, END], np.uint16)
    inputs, targets, positions, _ = Blocks(stream, [4, 5]).fill([(0, 0, 9)], (1, 11), True)
    assert inputs.tolist() == [[END, 10, 11, END, 20, END, 30, 31, 32, END, END]]
    assert targets.tolist() == [[10, 11, END, 20, END, 30, 31, 32, END, IGNORE, IGNORE]]
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0, 1, 2, 3, 0, 0]]
    assert inputs.dtype == targets.dtype == np.int64 and positions.dtype == np.int32


def test_a_piece_in_the_middle_of_a_document_is_a_segment_of_its_own() -> None:
    stream = np.arange(100, 120, dtype=np.uint16)
    blocks = Blocks(stream, [7, 13])
    inputs, targets, positions, _ = blocks.fill([(1, 5, 4), (1, 15, 3)], (2, 8), True)
    assert inputs[1].tolist() == [104, 105, 106, 107, 114, 115, 116, END]
    assert targets[1].tolist() == [105, 106, 107, 108, 115, 116, 117, IGNORE]
    assert positions[1].tolist() == [0, 1, 2, 3, 0, 1, 2, 0]
    assert blocks.fill([(1, 5, 4), (1, 15, 3)], (2, 8), False)[2][1].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]
    assert (inputs[0] == 77).all() and (targets[0] == 77).all() and (positions[0] == 77).all(), "another row was filled"


def test_the_block_of_a_token_beyond_32_bits() -> None:
    starts = np.array([0, 2**31 + 1, 2**40], np.int64)
    places = [0, 2**31, 2**31 + 1, 2**40 - 1, 2**40, 2**41]
    assert [block_of(starts, place) for place in places] == [0, 0, 1, 1, 2, 2]


def test_a_block_without_an_address_is_said_and_not_read() -> None:
    blocks = Blocks(np.arange(100, 120, dtype=np.uint16), [7, 13])
    for missing, pieces in ((0, [(0, 0, 3)]), (0, [(0, 7, 3)]), (1, [(0, 1, 2), (1, 5, 4)])):
        addresses, blocks.addresses = blocks.addresses, blocks.addresses.copy()
        blocks.addresses[missing] = 0
        assert blocks.fill(pieces, (2, 8), True)[3] == NOT_OPEN
        blocks.addresses = addresses
        assert blocks.fill(pieces, (2, 8), True)[3] >= 100


@pytest.mark.parametrize(("start", "length"), [(-1, 3), (0, 0), (8, 2), (2**62, 2)])
def test_a_piece_outside_the_stream_is_our_mistake(start: int, length: int) -> None:
    blocks = Blocks(np.arange(9, dtype=np.uint16), [9])
    with pytest.raises(AssertionError, match="outside the stream"):
        touched_blocks(blocks.starts, blocks.ends, np.array([0, start]), np.array([1, length]))
    with pytest.raises(AssertionError, match="outside the stream"):
        blocks.fill([(0, 0, 1), (1, start, length)], (2, 8), True)


def test_pieces_that_are_longer_than_their_row_are_our_mistake() -> None:
    with pytest.raises(AssertionError, match="longer than their row"):
        Blocks(np.arange(9, dtype=np.uint16), [9]).fill([(0, 0, 4), (0, 4, 5)], (1, 8), True)
