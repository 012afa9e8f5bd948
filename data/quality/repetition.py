"""Kernel that measures how much of a text repeats: the shares of its most frequent n-grams and of repeated ones.

An n-gram is n units (data/quality/word_measures.py) one after the other; two are the same if their hashes are. A share
is of the text's characters.
"""

from typing import Any

import numpy as np

from data.quality.byte_measures import inlined
from data.text.inner import inner

TOP_NGRAMS = (2, 3, 4)
REPEATED_NGRAMS = (5, 6, 7, 8, 9, 10)
NUM_SHARES = len(TOP_NGRAMS) + len(REPEATED_NGRAMS)
ROOM = 1 << 20
LOADS = 2048
_POSITION = np.uint64((1 << 21) - 1)
_TAG = ~_POSITION
_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_ZERO = np.uint64(0)
_int64: Any = np.int64


def share_names() -> list[str]:
    """The measure of each column of shares."""
    return [
        *(f"share of the top {n}-gram" for n in TOP_NGRAMS),
        *(f"share of repeated {n}-grams" for n in REPEATED_NGRAMS),
    ]


@inlined
def _place(table: np.ndarray, mask: np.uint64, h: np.uint64) -> tuple[np.uint64, int]:
    """(place of an n-gram's hash in the table, position of its first occurrence or -1 where the place is empty)."""
    place = (h >> np.uint64(32)) & mask
    while True:
        entry = table[place]
        if entry == _ZERO:
            return place, -1
        if (entry ^ h) & _TAG == _ZERO:
            return place, _int64(entry & _POSITION) - 1
        place = (place + np.uint64(1)) & mask


@inner
def _most_of_one_unit(hashes: np.ndarray, ends: np.ndarray, n: int, loads: np.ndarray) -> int:
    """At least as many characters as all occurrences of one unit have, each with a space behind it.

    Units whose hashes share some bits are counted together, in `loads`: int64, of a power of two of places.
    """
    mask = np.uint64(len(loads) - 1)
    loads[:] = 0
    for w in range(n):
        loads[hashes[w] & mask] += ends[w + 1] - ends[w] + 1
    return loads.max()


@inner
def _top(
    hashes: np.ndarray, ends: np.ndarray, n: int, size: int, table: np.ndarray, counts: np.ndarray, twice: np.ndarray
) -> int:
    """Characters of all occurrences of the most frequent n-gram of `size` units, the first one of equals, with spaces
    between its units; 0 if each occurs once.

    twice: bool[n], is set where an n-gram begins that occurs at least twice.
    """
    mask = np.uint64(len(table) - 1)
    table[:] = _ZERO
    power, rolling = np.uint64(1), _ZERO
    for w in range(size - 1):
        rolling = rolling * _FACTOR + hashes[w]
        power *= _FACTOR
    best = best_first = 0
    leaving = _ZERO
    for w in range(n - size + 1):
        rolling = (rolling - leaving * power) * _FACTOR + hashes[w + size - 1]
        leaving = hashes[w]
        h = (rolling ^ (rolling >> np.uint64(29))) * _MIX
        h ^= h >> np.uint64(32)
        place, first = _place(table, mask, h)
        twice[w] = first >= 0
        if first < 0:
            table[place] = (h & _TAG) | np.uint64(w + 1)
            continue
        counts[first] = counts[first] + 1 if twice[first] else 2
        twice[first] = True
        if counts[first] > best or counts[first] == best and first < best_first:
            best, best_first = counts[first], first
    return best * (ends[best_first + size] - ends[best_first] + size - 1)


@inner
def _repeated(
    hashes: np.ndarray, ends: np.ndarray, places: np.ndarray, num_places: int, size: int, table: np.ndarray
) -> int:
    """Characters of n-grams of `size` units that occurred before. The text is read from its start; behind such an
    n-gram the reading goes on, so that none overlaps another.

    places: int64, ascending: where a 4-gram begins that occurs at least twice; elsewhere no n-gram repeats.
    """
    mask = np.uint64(len(table) - 1)
    table[:] = _ZERO
    characters = next_unit = 0
    run = size - 3  # so many neighbouring places make one n-gram
    for k in range(num_places - run + 1):
        w = places[k]
        if w < next_unit or places[k + run - 1] != w + run - 1:
            continue
        rolling = np.uint64(size)
        for unit in range(w, w + size):
            rolling = rolling * _FACTOR + hashes[unit]
        h = (rolling ^ (rolling >> np.uint64(29))) * _MIX
        h ^= h >> np.uint64(32)
        place, first = _place(table, mask, h)
        if first < 0:
            table[place] = (h & _TAG) | np.uint64(w + 1)
            next_unit = w + 1
        else:
            characters += ends[w + size] - ends[w]
            next_unit = w + size
    return characters


@inner
def _table_size(num_keys: int) -> int:
    size = 16
    while size < 2 * num_keys:
        size *= 2
    return size


@inner
def measure_repetition(
    hashes: np.ndarray,
    ends: np.ndarray,
    n: int,
    characters: int,
    limits: np.ndarray,
    table: np.ndarray,
    counts: np.ndarray,
    twice: np.ndarray,
    places: np.ndarray,
    loads: np.ndarray,
    shares: np.ndarray,
) -> None:
    """The shares of a text of n units and so many characters.

    limits: float64[NUM_SHARES]. A share that cannot be above its limit may be left 0. Scratch: table, uint64, of a
    power of two of at least 2n places; counts, places: int64[n]; twice: bool[n]; loads: int64[LOADS]. shares:
    float64[NUM_SHARES], zeros.
    """
    table = table[: _table_size(n)]
    most = -1
    for column in range(len(TOP_NGRAMS)):
        size, limit = TOP_NGRAMS[column], limits[column]
        last = size == TOP_NGRAMS[-1]
        if n < size or limit == np.inf and not last:
            continue
        if not last and limit >= 0:
            if most < 0:
                most = _most_of_one_unit(hashes, ends, n, loads[: min(len(loads), len(table))])
            if size * most <= limit * characters:
                continue
        shares[column] = _top(hashes, ends, n, size, table, counts, twice) / characters
    num_places = _int64(0)  # not a constant, for which `_repeated` would be compiled once more
    candidates = reach = 0
    for w in range(n - TOP_NGRAMS[-1] + 1):
        if twice[w]:
            if num_places and places[num_places - 1] == w - 1:
                candidates += ends[w + 4] - ends[max(reach, w - 1)]
                reach = w + 4
            places[num_places] = w
            num_places += 1
    table = table[: _table_size(num_places)]
    for k in range(len(REPEATED_NGRAMS)):
        column = len(TOP_NGRAMS) + k
        if candidates > limits[column] * characters:
            found = _repeated(hashes, ends, places, num_places, REPEATED_NGRAMS[k], table)
            shares[column] = found / characters
