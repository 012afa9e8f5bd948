"""Encoding through a table of words: each distinct piece of text is encoded once, all others are looked up.

A BPE encoder only ever joins two neighbours into a piece of the vocabulary. So where no piece holds byte `a` followed
by byte `b`, no token of any text spans a place between `a` and `b`, and a text may be cut there without changing its
ids. `joined[a, b]` says which pairs stand in some piece. It is read from the vocabulary itself, so exactness rests on
no setting of the trainer. Words come out about 4.6 bytes long and few are distinct: 126,511 in 52 MB of English books
and manuals at 8,192 pieces.

New words are merged by a kernel of our own from the pieces' scores; words that it does not take (longer than
LONGEST_BYTES, or of a vocabulary whose pieces are not all ordinary) are given to the library.
"""

from collections.abc import Callable, Sequence

import numpy as np

from data.vocabulary.merge_kernels import Merges
from data.vocabulary.word_kernels import (
    DONE,
    FULL,
    INLINE_TOKENS,
    LONG_BYTES,
    LONGEST_BYTES,
    PADDING,
    SPILLED,
    WORDS,
    add_word,
    cut_words,
    encode_words,
    has_room,
    move_slots,
)

MAX_WORDS = 1 << 20
MAX_SPILLED_BYTES = 1 << 26  # of tokens and texts that do not fit into slots
FIRST_SLOTS = 1 << 12
FIRST_ROOM = 1 << 14


class WordTable:
    """The words met so far with their ids. Not for several threads at a time."""

    def __init__(
        self,
        *,
        joined: np.ndarray,
        merges: Merges,
        encode: Callable[[str], list[int]],
        end_id: int,
        max_words: int = MAX_WORDS,
    ) -> None:
        """joined: of `joined_pairs`. encode: the ids of one text. A table that would grow beyond `max_words` starts
        anew.
        """
        self._joined = joined.reshape(-1)
        self._merges = merges
        self._encode = encode
        self._end_id = end_id
        self._max_words = max_words
        self._clear()

    def _clear(self) -> None:
        self._slots = np.zeros((FIRST_SLOTS, 4), np.uint64)
        self._used = np.zeros(3, np.int64)
        self._spilled = np.empty(FIRST_ROOM, np.uint32)
        self._long_bytes = np.empty(FIRST_ROOM, np.uint8)

    @property
    def num_words(self) -> int:
        return int(self._used[WORDS])

    def encode(self, data: np.ndarray, offsets: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """data: uint8[num_bytes] of UTF-8, offsets: int64[num_documents + 1] into it.

        Returns tokens: dtype[n] with one end token after each document, lengths: int64[num_documents].
        """
        text = np.zeros(len(data) + PADDING, np.uint8)
        text[: len(data)] = data
        starts, words_before = np.empty(len(data) + 2, np.int64), np.empty(len(offsets), np.int64)
        cut_words(text, offsets, self._joined, starts, words_before)
        out = np.empty(len(data) + len(offsets) - 1 + INLINE_TOKENS, dtype)  # a token is at least one byte of text
        ends = np.empty(len(offsets) - 1, np.int64)
        state = np.zeros(3, np.int64)
        while True:
            result = encode_words(
                text, starts, words_before, self._slots, self._used, self._spilled, self._long_bytes,
                self._merges.slots, self._merges.byte_ids, self._end_id, out, ends, state,
            )  # fmt: skip
            if result == DONE:
                return out[: state[2]].copy(), np.diff(ends, prepend=0)
            if result == FULL:
                self._grow()
            else:
                self._ask(text, starts, out, state)

    def _ask(self, text: np.ndarray, starts: np.ndarray, out: np.ndarray, state: np.ndarray) -> None:
        """Have the library encode the word at hand."""
        start, end = int(starts[state[1]]), int(starts[state[1] + 1])
        ids = np.array(self._encode(text[start:end].tobytes().decode()), np.int64)
        if end - start <= LONGEST_BYTES:
            if not has_room(self._slots, self._used, self._spilled, self._long_bytes):
                self._grow()
            add_word(text, start, end, ids, len(ids), self._slots, self._used, self._spilled, self._long_bytes)
        else:
            out[state[2] : state[2] + len(ids)] = ids
            state[1] += 1
            state[2] += len(ids)

    def _grow(self) -> None:
        """Make room for another word."""
        if self.num_words >= self._max_words or 4 * self._used[SPILLED] + self._used[LONG_BYTES] > MAX_SPILLED_BYTES:
            self._clear()
        if 2 * (self.num_words + 1) > len(self._slots):
            slots = np.zeros((2 * len(self._slots), 4), np.uint64)
            move_slots(self._slots, slots, self._long_bytes)
            self._slots = slots
        self._spilled = _with_room(self._spilled, self._used[SPILLED])
        self._long_bytes = _with_room(self._long_bytes, self._used[LONG_BYTES])


def joined_pairs(pieces: Sequence[bytes]) -> np.ndarray:
    """bool[256, 256]: whether some piece holds this byte followed by that one. Pairs inside a character always count
    as joined.
    """
    joined = np.zeros((256, 256), dtype=np.bool_)
    for piece in pieces:
        text = np.frombuffer(piece, np.uint8)
        joined[text[:-1], text[1:]] = True
    joined[:, 0x80:0xC0] = True
    return joined


def _with_room(array: np.ndarray, used: int) -> np.ndarray:
    """The array, or a longer one with the same beginning if another word might not fit."""
    if used + LONGEST_BYTES <= len(array):
        return array
    larger = np.empty(2 * len(array) + LONGEST_BYTES, array.dtype)
    larger[:used] = array[:used]
    return larger
