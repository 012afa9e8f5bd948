"""Encoding through a table of words: each distinct piece of text is given to SentencePiece once, all others are looked
up.

A BPE encoder only ever joins two neighbours into a piece of the vocabulary. So where no piece holds byte `a` followed
by byte `b`, no token of any text spans a place between `a` and `b`, and a text may be cut there without changing its
ids. `joined[a, b]` says which pairs stand in some piece. It is read from the vocabulary itself, so exactness rests on
no setting of the trainer. Words come out about 4 bytes long and few are distinct: 37,602 in 12.8 MB of Python
documentation and source (222,291 if cut at spaces).
"""

from collections.abc import Callable, Sequence

import numpy as np
from numba import njit

HASH_PRIME = np.uint64(0x100000001B3)  # FNV-1a
HASH_START = np.uint64(0xCBF29CE484222325)
HASH_MIX = np.uint64(0x9E3779B97F4A7C15)
HASH_SHIFT = np.uint64(32)
MAX_WORDS = 1 << 20
MAX_WORD_BYTES = 1 << 26


class WordTable:
    """The words met so far with their ids. Not for several threads at a time."""

    def __init__(
        self,
        *,
        pieces: Sequence[bytes],
        encode: Callable[[str], list[int]],
        end_id: int,
        dtype: np.dtype,
        max_words: int = MAX_WORDS,
        max_word_bytes: int = MAX_WORD_BYTES,
    ) -> None:
        """pieces: the UTF-8 text of each id. encode: the ids of one text. A table that has grown beyond its limits
        starts anew.
        """
        self._encode = encode
        self._end_id = end_id
        self._dtype = dtype
        self._limits = (max_words, max_word_bytes)
        self._joined = joined_pairs(pieces)
        self._clear()

    def _clear(self) -> None:
        self._slots = np.full(1 << 12, -1, dtype=np.int32)
        self._hashes = np.empty(0, np.uint64)
        self._words = np.empty(0, np.uint8)
        self._word_ends = np.zeros(1, np.int64)
        self._tokens = np.empty(0, self._dtype)
        self._token_ends = np.zeros(1, np.int64)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """data: uint8[num_bytes] of UTF-8, offsets: int64[num_documents + 1] into it.

        Returns tokens: uint16|uint32[n] with one end-of-document id after each document, lengths: int64[num_documents].
        """
        if len(self._hashes) > self._limits[0] or len(self._words) > self._limits[1]:
            self._clear()
        starts, words_of_document = find_words(data, offsets, self._joined)
        word_ids = self._look_up(data, starts)
        return gather(word_ids, words_of_document, self._tokens, self._token_ends, self._end_id)

    def _look_up(self, data: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """int32[num_words]: the table's number of each word of `data`, after adding those that are new."""
        known = len(self._hashes)
        hashes = hash_words(data, starts)
        num_words = len(starts) - 1
        room = np.empty(known + num_words, np.int64)
        self._reserve(known + num_words)
        word_ids, num_new = match_words(
            data, starts, hashes, self._slots, self._hashes, self._words, self._word_ends, room
        )
        if num_new:
            first = room[:num_new]
            texts = [data[starts[i] : starts[i + 1]].tobytes() for i in first]
            tokens = [self._encode(text.decode()) for text in texts]
            self._hashes = np.concatenate([self._hashes, hashes[first]])
            self._words = np.concatenate([self._words, np.frombuffer(b"".join(texts), np.uint8)])
            self._word_ends = _extended(self._word_ends, [len(text) for text in texts])
            self._tokens = np.concatenate(
                [self._tokens, np.array([t for ids in tokens for t in ids], dtype=self._dtype)]
            )
            self._token_ends = _extended(self._token_ends, [len(ids) for ids in tokens])
        return word_ids

    def _reserve(self, num_words: int) -> None:
        """Keep the open-addressed slots at most half full, even if every word to come is new."""
        num_slots = len(self._slots)
        while num_slots < 2 * num_words:
            num_slots *= 2
        if num_slots > len(self._slots):
            self._slots = np.full(num_slots, -1, dtype=np.int32)
            fill_slots(self._hashes, self._slots)


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


def _extended(ends: np.ndarray, lengths: list[int]) -> np.ndarray:
    return np.concatenate([ends, ends[-1] + np.cumsum(lengths, dtype=np.int64)])


@njit(nogil=True, cache=True)
def find_words(data, offsets, joined):
    """starts: int64[num_words + 1] of the words of all documents, words_of_document: int64[num_documents]."""
    num_documents = len(offsets) - 1
    words_of_document = np.zeros(num_documents, np.int64)
    total = 0
    for document in range(num_documents):
        start, end = offsets[document], offsets[document + 1]
        count = 1 if end > start else 0
        for i in range(start + 1, end):
            if not joined[data[i - 1], data[i]]:
                count += 1
        words_of_document[document] = count
        total += count
    starts = np.empty(total + 1, np.int64)
    word = 0
    for document in range(num_documents):
        start, end = offsets[document], offsets[document + 1]
        if end > start:
            starts[word] = start
            word += 1
        for i in range(start + 1, end):
            if not joined[data[i - 1], data[i]]:
                starts[word] = i
                word += 1
    starts[total] = len(data)
    return starts, words_of_document


@njit(nogil=True, cache=True)
def hash_words(data, starts):
    """uint64[num_words]."""
    num_words = len(starts) - 1
    hashes = np.empty(num_words, np.uint64)
    for word in range(num_words):
        value = HASH_START
        for i in range(starts[word], starts[word + 1]):
            value = (value ^ np.uint64(data[i])) * HASH_PRIME
        hashes[word] = value * HASH_MIX
    return hashes


@njit(nogil=True, cache=True)
def fill_slots(hashes, slots):
    """Put the words 0..n-1 into empty slots, whose number is a power of two."""
    mask = len(slots) - 1
    for word in range(len(hashes)):
        slot = np.int64(hashes[word] >> HASH_SHIFT) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = word


@njit(nogil=True, cache=True)
def match_words(data, starts, hashes, slots, known_hashes, known_words, known_ends, first_seen):
    """word_ids: int32[num_words], num_new. Words are compared byte for byte, so equal hashes do no harm.

    A new word is numbered after the known ones and its place in `starts` is written to first_seen: int64[>= num_new].
    """
    mask = len(slots) - 1
    num_known = len(known_hashes)
    num_new = 0
    word_ids = np.empty(len(hashes), np.int32)
    for word in range(len(hashes)):
        start, length = starts[word], starts[word + 1] - starts[word]
        value = hashes[word]
        slot = np.int64(value >> HASH_SHIFT) & mask
        while True:
            other = slots[slot]
            if other < 0:
                slots[slot] = num_known + num_new
                first_seen[num_new] = word
                word_ids[word] = num_known + num_new
                num_new += 1
                break
            if other < num_known:
                same = known_hashes[other] == value and known_ends[other + 1] - known_ends[other] == length
                begin = known_ends[other]
                if same:
                    for i in range(length):
                        if known_words[begin + i] != data[start + i]:
                            same = False
                            break
            else:
                earlier = first_seen[other - num_known]
                begin = starts[earlier]
                same = hashes[earlier] == value and starts[earlier + 1] - begin == length
                if same:
                    for i in range(length):
                        if data[begin + i] != data[start + i]:
                            same = False
                            break
            if same:
                word_ids[word] = other
                break
            slot = (slot + 1) & mask
    return word_ids, num_new


@njit(nogil=True, cache=True)
def gather(word_ids, words_of_document, tokens, token_ends, end_id):
    """The tokens of each document's words in order, then end_id; and lengths: int64[num_documents], which count it."""
    total = len(words_of_document)
    for word in word_ids:
        total += token_ends[word + 1] - token_ends[word]
    out = np.empty(total, tokens.dtype)
    lengths = np.empty(len(words_of_document), np.int64)
    position = 0
    next_word = 0
    for document in range(len(words_of_document)):
        begin = position
        for _ in range(words_of_document[document]):
            word = word_ids[next_word]
            next_word += 1
            for i in range(token_ends[word], token_ends[word + 1]):
                out[position] = tokens[i]
                position += 1
        out[position] = end_id
        position += 1
        lengths[document] = position - begin
    return out, lengths
