"""Documents into training sequences, so that no token is lost.

    packing = make_packing("best-fit", num_tokens=..., document_lengths=stream.document_lengths, sequence_tokens=1024)
    pieces = packing.pieces(1024, np.array([7, 3]))     # the ranges of the stream that sequences 7 and 3 are targets of

A stream is all documents of a domain behind one another, each with its end-of-document token. A piece is a range of its
tokens as targets; their inputs are the tokens one place earlier, before the first of the stream an end-of-document
token. A sequence is one or more pieces, padded up to its length. In each packing every token of the stream is the
target of exactly one piece. Offsets are of 64 bits throughout.

* "stream": the stream cut every sequence_tokens; only the last sequence is padded.
* "best-fit": a document is cut only where it is longer than a sequence; the rests and the shorter documents share
  sequences by best-fit decreasing (Ding et al., Fewer Truncations Improve Language Modeling, ICML 2024).
* "length-buckets": a document is cut into pieces of sequence_tokens and then of smaller and smaller powers of two, the
  binary digits of its length; each is a sequence of its own length, so that none is padded and no document meets
  another (Pouransari et al., Dataset Decomposition, NeurIPS 2024).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np

from data.errors import InputError

PackingKind = Literal["stream", "best-fit", "length-buckets"]


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Arrays of one shape, int64[k]. row: index into the sequences that were asked for, ascending. start: the first
    target in the stream. length: targets.
    """

    row: np.ndarray
    start: np.ndarray
    length: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """What an epoch holds. slots: places for targets; slots = tokens + padding_tokens. cut_documents: documents in more
    than one piece.
    """

    tokens: int
    sequences: int
    slots: int
    padding_tokens: int
    cut_documents: int

    @property
    def waste(self) -> float:
        """Padding, as a share of the slots."""
        return self.padding_tokens / self.slots if self.slots else 0.0


class Packing(Protocol):
    """num_sequences: length -> sequences of that length, at least one."""

    num_sequences: Mapping[int, int]

    def pieces(self, length: int, sequences: np.ndarray) -> Pieces:
        """Of sequences of a length: int64[n], each below num_sequences[length], in any order."""

    @property
    def accounting(self) -> Accounting: ...


def make_packing(
    kind: PackingKind, *, num_tokens: int, document_lengths: Callable[[], np.ndarray], sequence_tokens: int
) -> Packing:
    """num_tokens: of the stream. document_lengths: () -> int64[num_documents], asked for only where it is needed, by
    "stream" for its accounting. sequence_tokens: of the longest sequences. Raises InputError for length buckets if it
    is no power of two.
    """
    if kind == "stream":
        return StreamPacking(num_tokens, sequence_tokens, document_lengths)
    lengths = document_lengths()
    assert int(lengths.sum()) == num_tokens, f"documents of {lengths.sum()} tokens in a stream of {num_tokens}"
    return (BestFitPacking if kind == "best-fit" else LengthBuckets)(lengths, sequence_tokens)


class StreamPacking:
    """Sequence i is the targets i * sequence_tokens and the following."""

    def __init__(
        self, num_tokens: int, sequence_tokens: int, document_lengths: Callable[[], np.ndarray] | None = None
    ) -> None:
        """document_lengths: as of `make_packing`; only the accounting needs it."""
        self._num_tokens = num_tokens
        self._sequence_tokens = sequence_tokens
        self._document_lengths = document_lengths
        self._count = -(-num_tokens // sequence_tokens)
        self.num_sequences: Mapping[int, int] = {sequence_tokens: self._count} if num_tokens else {}

    def pieces(self, length: int, sequences: np.ndarray) -> Pieces:
        assert length == self._sequence_tokens, f"no sequences of {length} tokens"
        start = np.asarray(sequences, dtype=np.int64) * length
        return Pieces(
            row=np.arange(len(start)), start=start, length=np.minimum(self._num_tokens - start, self._sequence_tokens)
        )

    @cached_property
    def accounting(self) -> Accounting:
        assert self._document_lengths is not None, "a packing without the lengths of its documents"
        ends = np.cumsum(self._document_lengths(), dtype=np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        cut = starts // self._sequence_tokens < (ends - 1) // self._sequence_tokens
        return _account(self.num_sequences, self._num_tokens, int(cut.sum()))


class BestFitPacking:
    """The whole sequences of long documents first, in the order of the stream, then the shared ones. Holds 8 bytes a
    whole sequence and 16 a shared piece.
    """

    def __init__(self, document_lengths: np.ndarray, sequence_tokens: int) -> None:
        """document_lengths: int64[num_documents]."""
        from data.order.best_fit import pack

        lengths, starts = _lengths_and_starts(document_lengths)
        self._sequence_tokens = sequence_tokens
        self._whole = _whole_starts(lengths, starts, sequence_tokens)
        rest = lengths % sequence_tokens
        shared = np.flatnonzero(rest)
        rest = rest[shared]
        self._offsets, items = pack(rest, sequence_tokens)
        self._lengths = rest[items]
        ends = starts[shared] + lengths[shared]
        self._starts = ends[items] - self._lengths
        count = len(self._whole) + len(self._offsets) - 1
        self.num_sequences: Mapping[int, int] = {sequence_tokens: count} if count else {}
        self.accounting = _account(self.num_sequences, int(lengths.sum()), int((lengths > sequence_tokens).sum()))

    def pieces(self, length: int, sequences: np.ndarray) -> Pieces:
        from data.order.best_fit import chosen_pieces

        assert length == self._sequence_tokens, f"no sequences of {length} tokens"
        chosen = np.ascontiguousarray(sequences, dtype=np.int64)
        row, start, size = chosen_pieces(chosen, self._whole, self._offsets, self._starts, self._lengths, length)
        return Pieces(row=row, start=start, length=size)


class LengthBuckets:
    """The sequences of a length stand in the order of the stream. Holds 8 bytes a sequence."""

    def __init__(self, document_lengths: np.ndarray, sequence_tokens: int) -> None:
        """document_lengths: int64[num_documents]. Raises InputError if sequence_tokens is no power of two."""
        digits = _digits(sequence_tokens)
        lengths, starts = _lengths_and_starts(document_lengths)
        self._starts: dict[int, np.ndarray] = {}
        for digit in range(digits):
            documents = np.flatnonzero(lengths & (1 << digit))
            larger = lengths[documents] >> (digit + 1) << (digit + 1)
            if len(documents):
                self._starts[1 << digit] = starts[documents] + larger
        whole = _whole_starts(lengths, starts, sequence_tokens)
        if len(whole):
            self._starts[sequence_tokens] = whole
        self.num_sequences: Mapping[int, int] = {length: len(found) for length, found in self._starts.items()}
        uncut = (lengths <= sequence_tokens) & (lengths & (lengths - 1) == 0)
        self.accounting = _account(self.num_sequences, int(lengths.sum()), int((~uncut).sum()))

    def pieces(self, length: int, sequences: np.ndarray) -> Pieces:
        start = self._starts[length][sequences]
        return Pieces(row=np.arange(len(start)), start=start, length=np.full(len(start), length))


def bucket_sequences(length_bits: Sequence[int], sequence_tokens: int) -> dict[int, int]:
    """What `LengthBuckets.num_sequences` will be. length_bits: item i is the number of documents whose length has the
    binary digit 2^i. Raises InputError if sequence_tokens is no power of two.
    """
    digits = _digits(sequence_tokens)
    counts = {1 << digit: count for digit, count in enumerate(length_bits[:digits])}
    counts[sequence_tokens] = sum(count << digit for digit, count in enumerate(length_bits[digits:]))
    return {length: count for length, count in counts.items() if count}


class Coverage(NamedTuple):
    """How often each target was read: arrays of one shape, int64[k]. Range i begins at starts[i] and has lengths[i]
    targets, each read times[i] times. The ranges are ascending, stand side by side and make up the stream.
    """

    starts: np.ndarray
    lengths: np.ndarray
    times: np.ndarray


def covered(packing: Packing, counts: Mapping[int, np.ndarray]) -> Coverage:
    """counts: length -> int64[num_sequences[length]], how often each sequence was read; a length without counts was
    never read.
    """
    found = [packing.pieces(length, np.arange(count)) for length, count in packing.num_sequences.items()]
    read = [
        np.asarray(counts[length], dtype=np.int64)[pieces.row] if length in counts else np.zeros_like(pieces.row)
        for length, pieces in zip(packing.num_sequences, found, strict=True)
    ]
    empty = np.zeros(0, np.int64)
    starts = np.concatenate([empty, *(pieces.start for pieces in found)])
    ends = starts + np.concatenate([empty, *(pieces.length for pieces in found)])
    order = np.argsort(starts)
    starts, ends, times = starts[order], ends[order], np.concatenate([empty, *read])[order]
    first = np.flatnonzero(np.concatenate([np.ones(min(1, len(times)), bool), times[1:] != times[:-1]]))
    starts = starts[first]
    return Coverage(starts, np.concatenate([starts[1:], ends[-1:]]) - starts, times[first])


def tokens_seen(document_lengths: np.ndarray, coverage: Coverage) -> np.ndarray:
    """int64[num_documents]: how many targets of each document were read, one that was read twice counted twice.

    document_lengths: int64[num_documents] of the stream.
    """
    ends = np.cumsum(document_lengths, dtype=np.int64)
    if not len(coverage.starts):
        return np.zeros(len(ends), np.int64)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(coverage.lengths * coverage.times)])
    place = np.searchsorted(coverage.starts, ends, side="right") - 1
    until_end = before[place] + (ends - coverage.starts[place]) * coverage.times[place]
    return np.diff(until_end, prepend=0)


def _lengths_and_starts(document_lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.ascontiguousarray(document_lengths, dtype=np.int64)
    assert lengths.size == 0 or lengths.min() > 0, "a document without its end-of-document token"
    return lengths, np.cumsum(lengths) - lengths


def _whole_starts(lengths: np.ndarray, starts: np.ndarray, sequence_tokens: int) -> np.ndarray:
    """int64[n]: where the whole sequences of the documents begin, in the order of the stream."""
    whole = lengths // sequence_tokens
    first = np.cumsum(whole) - whole
    return np.repeat(starts - first * sequence_tokens, whole) + np.arange(whole.sum()) * sequence_tokens


def _digits(sequence_tokens: int) -> int:
    if sequence_tokens < 1 or sequence_tokens & (sequence_tokens - 1):
        raise InputError(
            f"length buckets are powers of two, and {sequence_tokens} tokens a sequence is none; set sequence_tokens "
            f"to {1 << max(0, sequence_tokens).bit_length()}, or choose another packing"
        )
    return sequence_tokens.bit_length() - 1


def _account(num_sequences: Mapping[int, int], tokens: int, cut_documents: int) -> Accounting:
    slots = sum(length * count for length, count in num_sequences.items())
    return Accounting(
        tokens=tokens,
        sequences=sum(num_sequences.values()),
        slots=slots,
        padding_tokens=slots - tokens,
        cut_documents=cut_documents,
    )
