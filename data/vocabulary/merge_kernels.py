"""Byte-pair encoding of one word as SentencePiece does it, over a table of the vocabulary's merges.

Of all neighbours that make a piece, those whose piece has the best score are joined first, the leftmost of equals,
until none are left. A character without a piece becomes its bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

ID_BITS = 20

_NONE = np.int64(np.iinfo(np.int64).max)
_EMPTY = np.uint64(np.iinfo(np.uint64).max)
_CHARACTER = np.uint64(1 << 63)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, kw_only=True)
class Merges:
    """slots: uint64[n, 2], open-addressed: of a character or of two ids side by side, the rank of the piece that they
    make (0 is the best) << ID_BITS | its id. Without any, nothing can be merged. byte_ids: int64[256].
    """

    slots: np.ndarray
    byte_ids: np.ndarray


NO_MERGES = Merges(slots=np.empty((0, 2), np.uint64), byte_ids=np.zeros(256, np.int64))


def merges_of(pieces: Sequence[str], ids: Sequence[int], scores: Sequence[float], byte_ids: Sequence[int]) -> Merges:
    """The merges that lead to `pieces`, which are distinct. Score of equal value: equal rank.

    NO_MERGES if a piece holds a character that is none itself: it could be joined without having an id.
    """
    ranks = np.unique(-np.asarray(scores, np.float32), return_inverse=True)[1].tolist()
    number_of = dict(zip(pieces, ids, strict=True))
    keys, values = [], []
    for piece, number, rank in zip(pieces, ids, ranks, strict=True):
        if len(piece) == 1:
            keys.append(int(_CHARACTER) | int.from_bytes(piece.encode(), "little"))
            values.append(rank << ID_BITS | number)
            continue
        if any(character not in number_of for character in piece):
            return NO_MERGES
        for cut in range(1, len(piece)):
            left, right = number_of.get(piece[:cut]), number_of.get(piece[cut:])
            if left is not None and right is not None:
                keys.append(left << ID_BITS | right)
                values.append(rank << ID_BITS | number)
    slots = np.full((1 << (2 * len(keys)).bit_length(), 2), _EMPTY)
    _fill(slots, np.array(keys, np.uint64), np.array(values, np.uint64))
    return Merges(slots=slots, byte_ids=np.asarray(byte_ids, np.int64))


@njit(nogil=True, cache=True)
def _slot_of(slots, key):
    """The slot that holds `key`, or the empty one where it would stand."""
    mask = len(slots) - 1
    mixed = key * _MIX
    slot = np.int64((mixed ^ mixed >> np.uint64(32)) & np.uint64(mask))
    while slots[slot, 0] != key and slots[slot, 0] != _EMPTY:
        slot = (slot + 1) & mask
    return slot


@njit(nogil=True, cache=True)
def _fill(slots, keys, values):
    for i in range(len(keys)):
        slot = _slot_of(slots, keys[i])
        slots[slot, 0], slots[slot, 1] = keys[i], values[i]


@njit(nogil=True, cache=True)
def _joint(slots, left, right):
    """rank << ID_BITS | id of the piece that two symbols make, or _NONE."""
    if left == _NONE or right == _NONE:
        return _NONE
    mask = np.int64((1 << ID_BITS) - 1)
    slot = _slot_of(slots, np.uint64((left & mask) << ID_BITS | right & mask))
    return np.int64(slots[slot, 1]) if slots[slot, 0] != _EMPTY else _NONE


@njit(nogil=True, cache=True)
def merge(data, start, end, slots, byte_ids, found, scratch):
    """Encode data[start:end], valid UTF-8. Writes the ids to `found` (int64, of at least end - start elements) and
    returns their number. slots, byte_ids: of Merges. scratch: int64[3, >= end - start].
    """
    begins, own, joint = scratch[0], scratch[1], scratch[2]
    count = 0
    i = start
    while i < end:
        key = _CHARACTER | np.uint64(data[i])
        begins[count] = i
        i += 1
        shift = np.uint64(8)
        while i < end and data[i] & 0xC0 == 0x80:
            key |= np.uint64(data[i]) << shift
            shift += np.uint64(8)
            i += 1
        slot = _slot_of(slots, key)
        own[count] = np.int64(slots[slot, 1]) if slots[slot, 0] != _EMPTY else _NONE
        count += 1
    for i in range(count - 1):
        joint[i] = _joint(slots, own[i], own[i + 1])
    while count > 1:
        best = 0
        for i in range(1, count - 1):
            if joint[i] >> ID_BITS < joint[best] >> ID_BITS:
                best = i
        if joint[best] == _NONE:
            break
        own[best] = joint[best]
        count -= 1
        for i in range(best + 1, count):
            begins[i], own[i] = begins[i + 1], own[i + 1]
        for i in range(best + 1, count - 1):
            joint[i] = joint[i + 1]
        if best > 0:
            joint[best - 1] = _joint(slots, own[best - 1], own[best])
        if best < count - 1:
            joint[best] = _joint(slots, own[best], own[best + 1])
    num_tokens = 0
    for i in range(count):
        if own[i] != _NONE:
            found[num_tokens] = own[i] & ((1 << ID_BITS) - 1)
            num_tokens += 1
        else:
            for place in range(begins[i], begins[i + 1] if i + 1 < count else end):
                found[num_tokens] = byte_ids[data[place]]
                num_tokens += 1
    return num_tokens
