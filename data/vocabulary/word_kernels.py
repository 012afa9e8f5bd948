"""Kernels of the word table: open-addressed slots of words, and the loop that encodes documents through them.

A slot is four uint64: two that identify the word, its tokens, and where its text stands if it is a long one. A word of
at most SHORT_BYTES bytes is its own key (its bytes, and its length in the last of the sixteen), so it is never
compared byte for byte; a longer one, of at most LONGEST_BYTES, has its hash for a key and is compared.
"""

import numpy as np
from numba import njit

from data.vocabulary.merge_kernels import ID_BITS, merge

SHORT_BYTES, LONGEST_BYTES = 15, 255
INLINE_TOKENS = 3
PADDING = 16

DONE, FULL, UNKNOWN_WORD = 0, 1, 2
WORDS, SPILLED, LONG_BYTES = 0, 1, 2  # of a table's `used`

_LONG_KEY = np.uint64(0xFF << 56)
_LENGTH_SHIFT = np.uint64(56)
_COUNT_SHIFT = np.uint64(60)
_ID_SHIFT = np.uint64(ID_BITS)
_SECOND_ID_SHIFT = np.uint64(2 * ID_BITS)
_ID_MASK = np.uint64((1 << ID_BITS) - 1)
_START_MASK = np.uint64((1 << (60 - ID_BITS)) - 1)
_ONE, _EIGHT = np.uint64(1), np.uint64(8)
_BYTE_MASK = np.uint64(255)
_HASH_PRIME = np.uint64(0x100000001B3)  # FNV-1a
_HASH_START = np.uint64(0xCBF29CE484222325)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xD6E8FEB86659FD93)
_FIRST_MASKS, _SECOND_MASKS = (  # of the bytes that a short word of each length has in either part of its key
    np.array([(1 << 8 * min(max(length - begin, 0), 8)) - 1 for length in range(SHORT_BYTES + 1)], np.uint64)
    for begin in (0, 8)
)


@njit(nogil=True, cache=True)
def _load8(data, start):
    """Eight bytes as a number; the compiler makes one load of it."""
    i = np.uint64(start)
    low = np.uint64(data[i]) | np.uint64(data[i + _ONE]) << np.uint64(8)
    low |= np.uint64(data[i + np.uint64(2)]) << np.uint64(16) | np.uint64(data[i + np.uint64(3)]) << np.uint64(24)
    low |= np.uint64(data[i + np.uint64(4)]) << np.uint64(32) | np.uint64(data[i + np.uint64(5)]) << np.uint64(40)
    return low | np.uint64(data[i + np.uint64(6)]) << np.uint64(48) | np.uint64(data[i + np.uint64(7)]) << np.uint64(56)


@njit(nogil=True, cache=True)
def key_of(data, start, end):
    """(first, second) part of the key of data[start:end], which is not empty; behind it stand PADDING bytes."""
    length = end - start
    if length <= SHORT_BYTES:
        second = _load8(data, start + 8) & _SECOND_MASKS[length] | np.uint64(length) << _LENGTH_SHIFT
        return _load8(data, start) & _FIRST_MASKS[length], second
    first = _HASH_START
    for i in range(start, end):
        first = (first ^ np.uint64(data[i])) * _HASH_PRIME
    return first, _LONG_KEY | np.uint64(length)


@njit(nogil=True, cache=True)
def _place(first, second):
    """Where a key's slot would be among endlessly many."""
    mixed = (first ^ second * _MIX_2) * _MIX
    return mixed ^ mixed >> np.uint64(32)


@njit(nogil=True, cache=True)
def find_slot(slots, first, second, data, start, end, long_bytes):
    """The slot that holds data[start:end], or the empty one where it would stand."""
    mask = np.uint64(len(slots) - 1)
    slot = _place(first, second) & mask
    while slots[slot, 1] != 0:
        if slots[slot, 0] == first and slots[slot, 1] == second:
            if second < _LONG_KEY:
                return slot
            begin = np.int64(slots[slot, 3])
            same = True
            for i in range(end - start):
                if long_bytes[begin + i] != data[start + i]:
                    same = False
                    break
            if same:
                return slot
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(nogil=True, cache=True)
def move_slots(old, new, long_bytes):
    """Put every text of `old` into the empty slots of `new`."""
    for number in range(len(old)):
        first, second = old[number, 0], old[number, 1]
        if second != 0:
            start = np.int64(old[number, 3])
            end = start + np.int64(second & _BYTE_MASK) if second >= _LONG_KEY else start
            slot = find_slot(new, first, second, long_bytes, start, end, long_bytes)
            new[slot] = old[number]


@njit(nogil=True, cache=True)
def add_word(data, start, end, ids, num_ids, slots, used, spilled, long_bytes):
    """Put a word with its ids into its slot; its tokens stand in the slot if they fit, else in `spilled`. Returns the
    slot's value.

    There must be room for one more word of this length.
    """
    first, second = key_of(data, start, end)
    slot = find_slot(slots, first, second, data, start, end, long_bytes)
    value = np.uint64(0)
    if num_ids <= INLINE_TOKENS:
        for i in range(num_ids):
            value |= np.uint64(ids[i]) << np.uint64(ID_BITS * i)
        value |= np.uint64(num_ids) << _COUNT_SHIFT
    else:
        place = used[SPILLED]
        for i in range(num_ids):
            spilled[place + i] = ids[i]
        value = np.uint64(place) << _ID_SHIFT | np.uint64(num_ids)
        used[SPILLED] = place + num_ids
    slots[slot, 0], slots[slot, 1], slots[slot, 2] = first, second, value
    if second >= _LONG_KEY:
        place = used[LONG_BYTES]
        for i in range(end - start):
            long_bytes[place + i] = data[start + i]
        slots[slot, 3] = np.uint64(place)
        used[LONG_BYTES] = place + end - start
    used[WORDS] += 1
    return value


@njit(nogil=True, cache=True)
def cut_words(data, offsets, joined, starts, words_before):
    """Cut documents between bytes that no piece joins.

    data: uint8[n], offsets: int64[num_documents + 1], joined: bool[65536], at 256 times one byte plus the next. Writes
    where words begin to starts: int64[> n], and n behind the last; and how many words stand before each document, and
    in all, to words_before: int64[num_documents + 1].
    """
    count = np.uint64(0)
    for document in range(len(offsets) - 1):
        words_before[document] = count
        start, end = offsets[document], offsets[document + 1]
        if start == end:
            continue
        starts[count] = start
        count += np.uint64(1)
        before = np.uint64(data[start])
        # Every byte writes a place, which the next one overwrites unless a word begins: branches on text are guesses
        # that the processor loses.
        for i in range(start + 1, end):
            byte = np.uint64(data[np.uint64(i)])
            starts[count] = i
            count += np.uint64(not joined[before << _EIGHT | byte])
            before = byte
    words_before[len(offsets) - 1] = count
    starts[count] = offsets[len(offsets) - 1]


@njit(nogil=True, cache=True)
def encode_words(
    data, starts, words_before, slots, used, spilled, long_bytes, merges, byte_ids, end_id, out, ends, state
):
    """Encode documents from `state` on until they are done or the caller is needed.

    data: uint8[n + PADDING]; starts, words_before: of `cut_words`. out: tokens, with room for n + num_documents +
    INLINE_TOKENS; ends: int64[num_documents], behind each document's. state: int64[3]: document, word, place in `out`.

    Returns DONE, FULL (the table must grow) or UNKNOWN_WORD (the caller encodes the word at hand: a longer one than
    LONGEST_BYTES, or any new one if there are no `merges`).
    """
    mask = np.uint64(len(slots) - 1)
    found = np.empty(LONGEST_BYTES, np.int64)
    scratch = np.empty((3, LONGEST_BYTES), np.int64)
    document, word, place = state[0], state[1], np.uint64(state[2])
    result = DONE
    while document < len(words_before) - 1:
        last = words_before[document + 1]
        while word < last:
            start, end = starts[word], starts[word + 1]
            length = end - start
            if length <= SHORT_BYTES:
                first = _load8(data, start) & _FIRST_MASKS[length]
                second = _load8(data, start + 8) & _SECOND_MASKS[length] | np.uint64(length) << _LENGTH_SHIFT
                slot = _place(first, second) & mask
                while (slots[slot, 0] != first or slots[slot, 1] != second) and slots[slot, 1] != 0:
                    slot = (slot + np.uint64(1)) & mask
            elif length <= LONGEST_BYTES:
                first, second = key_of(data, start, end)
                slot = find_slot(slots, first, second, data, start, end, long_bytes)
            else:
                result = UNKNOWN_WORD
                break
            if slots[slot, 1] != 0:
                value = slots[slot, 2]
            elif len(merges) == 0:
                result = UNKNOWN_WORD
                break
            elif not has_room(slots, used, spilled, long_bytes):
                result = FULL
                break
            else:
                num_ids = merge(data, start, end, merges, byte_ids, found, scratch)
                value = add_word(data, start, end, found, num_ids, slots, used, spilled, long_bytes)
            word += 1
            count = value >> _COUNT_SHIFT
            if count != 0:
                out[place] = value & _ID_MASK
                out[place + np.uint64(1)] = value >> _ID_SHIFT & _ID_MASK
                out[place + np.uint64(2)] = value >> _SECOND_ID_SHIFT & _ID_MASK
                place += count
            else:
                begin = value >> _ID_SHIFT & _START_MASK
                for k in range(value & _ID_MASK):
                    out[place] = spilled[begin + np.uint64(k)]
                    place += np.uint64(1)
        if result != DONE:
            break
        out[place] = end_id
        place += np.uint64(1)
        ends[document] = place
        document += 1
    state[0], state[1], state[2] = document, word, place
    return result


@njit(nogil=True, cache=True)
def has_room(slots, used, spilled, long_bytes):
    """Whether one more word of any length that the table takes fits; slots stay at most half full."""
    return (
        2 * (used[WORDS] + 1) <= len(slots)
        and used[SPILLED] + LONGEST_BYTES <= len(spilled)
        and used[LONG_BYTES] + LONGEST_BYTES <= len(long_bytes)
    )
