"""A user relies on: in each packing every token of every document is a target exactly once an epoch, and documents are
cut only where the packing says so.
"""

from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.order.batches import Phase, SampleOrder
from data.order.packing import (
    Coverage,
    Packing,
    Pieces,
    bucket_sequences,
    covered,
    make_packing,
    tokens_seen,
)

KINDS = ("stream", "best-fit", "length-buckets")
LENGTHS = st.lists(st.one_of(st.integers(1, 9), st.integers(1, 90)), max_size=40)
CAPACITIES = st.sampled_from([1, 2, 4, 16, 32])


def made(kind: str, lengths: list[int] | np.ndarray, sequence_tokens: int) -> Packing:
    lengths = np.array(lengths, dtype=np.int64)
    return make_packing(
        kind,  # type: ignore[arg-type]
        num_tokens=int(lengths.sum()),
        document_lengths=lambda: lengths,
        sequence_tokens=sequence_tokens,
    )


def all_pieces(packing: Packing) -> list[tuple[int, int, int, int]]:
    """(length, sequence, start, piece length) of all."""
    found = []
    for length, count in packing.num_sequences.items():
        pieces = packing.pieces(length, np.arange(count))
        assert {array.dtype for array in (pieces.row, pieces.start, pieces.length)} == {np.dtype(np.int64)}
        assert (np.diff(pieces.row) >= 0).all() and set(pieces.row.tolist()) == set(range(count))
        found += [
            (length, row, start, size)
            for row, start, size in zip(pieces.row.tolist(), pieces.start.tolist(), pieces.length.tolist(), strict=True)
        ]
    return found


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(lengths=LENGTHS, sequence_tokens=CAPACITIES)
def test_every_token_is_a_target_once_an_epoch(kind: str, lengths: list[int], sequence_tokens: int) -> None:
    packing = made(kind, lengths, sequence_tokens)
    times = np.zeros(sum(lengths), int)
    filled: dict[tuple[int, int], int] = {}
    for length, row, start, size in all_pieces(packing):
        assert size > 0
        times[start : start + size] += 1
        filled[length, row] = filled.get((length, row), 0) + size
    assert (times == 1).all()
    assert all(size <= length <= sequence_tokens for (length, _), size in filled.items())
    accounting = packing.accounting
    assert accounting.tokens == sum(lengths) and accounting.sequences == len(filled)
    assert accounting.slots == sum(length for length, _ in filled)
    assert accounting.padding_tokens == accounting.slots - accounting.tokens
    assert accounting.waste == pytest.approx(accounting.padding_tokens / max(1, accounting.slots))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(lengths=LENGTHS, sequence_tokens=CAPACITIES)
def test_documents_are_cut_only_where_the_packing_says_so(kind: str, lengths: list[int], sequence_tokens: int) -> None:
    packing = made(kind, lengths, sequence_tokens)
    pieces = sorted((start, size) for _, _, start, size in all_pieces(packing))
    begin, cut = 0, 0
    for length in lengths:
        touched = [(start, size) for start, size in pieces if start < begin + length and start + size > begin]
        cut += len(touched) > 1
        if kind == "best-fit":
            whole, rest = divmod(length, sequence_tokens)
            assert [size for _, size in touched] == [sequence_tokens] * whole + [rest] * (rest > 0)
        if kind == "length-buckets":
            whole, rest = divmod(length, sequence_tokens)
            digits = [1 << bit for bit in reversed(range(8)) if rest >> bit & 1]
            assert [size for _, size in touched] == [sequence_tokens] * whole + digits
        if kind != "stream":
            assert touched[0][0] == begin
        begin += length
    assert packing.accounting.cut_documents == cut


@settings(max_examples=40)
@given(lengths=LENGTHS, sequence_tokens=CAPACITIES)
def test_length_buckets_pad_nothing_and_follow_from_digits(lengths: list[int], sequence_tokens: int) -> None:
    packing = made("length-buckets", lengths, sequence_tokens)
    assert packing.accounting.padding_tokens == 0
    bits = [sum(length >> bit & 1 for length in lengths) for bit in range(10)]
    assert bucket_sequences(bits, sequence_tokens) == packing.num_sequences


def test_best_fit_wastes_little() -> None:
    lengths = np.random.default_rng(1).integers(2, 700, 5000)
    packing = made("best-fit", lengths, 256)
    assert packing.accounting.waste < 0.002
    assert packing.accounting.cut_documents == int((lengths > 256).sum())


def test_the_stream_pads_its_last_sequence_only() -> None:
    packing = made("stream", [3, 7, 5], 4)
    pieces = packing.pieces(4, np.array([3, 0, 2]))
    assert (pieces.start.tolist(), pieces.length.tolist()) == ([12, 0, 8], [3, 4, 4])
    assert packing.accounting.padding_tokens == 1 and packing.accounting.cut_documents == 2


@pytest.mark.parametrize("kind", KINDS)
def test_some_sequences_are_those_of_all_in_any_order_with_repetitions(kind: str) -> None:
    packing = made(kind, np.random.default_rng(2).integers(1, 60, 50), 16)
    for length, count in packing.num_sequences.items():
        asked = np.random.default_rng(3).integers(0, count, 25)
        whole, some = packing.pieces(length, np.arange(count)), packing.pieces(length, asked)
        for row, sequence in enumerate(asked):
            assert _of(some, row) == _of(whole, int(sequence))


def _of(pieces: Pieces, row: int) -> list[tuple[int, int]]:
    return list(zip(pieces.start[pieces.row == row], pieces.length[pieces.row == row], strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_at_all(kind: str) -> None:
    packing = made(kind, [], 16)
    assert packing.num_sequences == {} and packing.accounting.slots == 0 and packing.accounting.waste == 0
    assert len(covered(packing, {}).starts) == 0
    assert tokens_seen(np.zeros(0, np.int64), covered(packing, {})).tolist() == []


def test_packing_is_the_same_again() -> None:
    lengths = np.random.default_rng(4).integers(1, 300, 2000)
    assert all_pieces(made("best-fit", lengths, 128)) == all_pieces(made("best-fit", lengths, 128))


@pytest.mark.parametrize("sequence_tokens", [0, 3, 1000])
def test_length_buckets_need_a_power_of_two(sequence_tokens: int) -> None:
    with pytest.raises(InputError, match="powers of two.*set sequence_tokens"):
        made("length-buckets", [5], sequence_tokens)
    with pytest.raises(InputError, match="powers of two"):
        bucket_sequences([1], sequence_tokens)


def test_lengths_are_asked_for_only_where_they_are_needed() -> None:
    def never() -> np.ndarray:
        raise AssertionError("asked for")

    packing = make_packing("stream", num_tokens=100, document_lengths=never, sequence_tokens=16)
    assert packing.pieces(16, np.array([6])).length.tolist() == [4]
    with pytest.raises(AssertionError, match="asked for"):
        make_packing("best-fit", num_tokens=100, document_lengths=never, sequence_tokens=16)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(lengths=LENGTHS, sequence_tokens=CAPACITIES, data=st.data())
def test_what_was_seen_of_each_document(
    kind: str, lengths: list[int], sequence_tokens: int, data: st.DataObject
) -> None:
    packing = made(kind, lengths, sequence_tokens)
    counts = {
        length: np.array(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), dtype=np.int64)
        for length, count in packing.num_sequences.items()
        if length != 2
    }
    times = np.zeros(sum(lengths), int)
    for length, row, start, size in all_pieces(packing):
        times[start : start + size] = counts[length][row] if length in counts else 0
    coverage = covered(packing, counts)
    assert np.array_equal(np.repeat(coverage.times, coverage.lengths), times)
    assert np.array_equal(coverage.starts, np.cumsum(coverage.lengths) - coverage.lengths)
    assert (np.diff(coverage.times) != 0).all()
    expected = [int(part.sum()) for part in np.split(times, np.cumsum(lengths)[:-1])] if lengths else []
    assert tokens_seen(np.array(lengths, dtype=np.int64), coverage).tolist() == expected


def test_what_was_seen_of_documents_beyond_32_bits() -> None:
    coverage = Coverage(np.array([0, 2**33]), np.array([2**33, 2**32]), np.array([3, 1]))
    assert tokens_seen(np.array([2**32, 2**33]), coverage).tolist() == [3 * 2**32, 4 * 2**32]


@pytest.mark.parametrize("kind", KINDS)
def test_three_documents_of_a_billion_tokens_in_the_last_sample_of_several_epochs(kind: str) -> None:
    """Offsets past 2^31 and 2^32, of a length that is a power of two and of two that leave a rest."""
    lengths = np.array([2**30, 2**30 + 3, 2**31 + 1])
    packing = made(kind, lengths, 1024)
    size = packing.num_sequences[1024]
    order = SampleOrder(
        seed=0,
        num_sequences={"a": packing.num_sequences},
        phases=[Phase(first_step=0, weights={"a": 1}, longest_tokens=1024, batch_tokens=1024 * 512)],
    )
    following = bisect_left(range(10**6), 5 * size, key=lambda draw: order.samples_before(draw)["a", 1024])
    batch = order.batch(following - 1)
    assert batch.length == 1024 and (5 * size - 1) // size == 4 and 4 in batch.epoch
    pieces = packing.pieces(1024, batch.sequence)
    assert pieces.start.dtype == np.int64 and pieces.start.min() >= 0 and pieces.start.max() > 2**31
    assert (pieces.start + pieces.length).max() <= lengths.sum()
    last = packing.pieces(1024, np.arange(size - 5000, size))
    assert (np.diff(last.start[last.length == 1024]) > 0).all()
    assert lengths.sum() - 1024 <= (last.start + last.length).max() <= lengths.sum()
