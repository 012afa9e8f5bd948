"""Kernels of the n-gram model: the ids of a text's tokens, and what its bits add up to.

Costs are whole numbers of 1 / COST_UNIT bit, so that a sum does not depend on its order. A table of pairs or of triples
of ids is uint64[power of two], open addressing by `mixed`: check << 32 | cost << 16 | cost of falling back, 0 where
there is none. The check has 31 bits beyond those of the place, so one in some thousand million look-ups of what is not
there finds something.
"""

import numba
import numpy as np

from data.text.model_tokens import _FOLDED, next_token

COST_UNIT = 1024
MOST_COST = 65535
ID_BITS = 21
UNKNOWN, BEGIN = 0, 1  # ids of a token outside the vocabulary, and of what stands before a text
WORD_BEGIN = WORD_END = 256  # in the table of spelling, beside the 256 bytes

_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xBF58476D1CE4E5B9)
_ID_MASK = np.uint64((1 << ID_BITS) - 1)
_SHIFT = np.uint64(ID_BITS)
_CHUNK = 256


@numba.njit(nogil=True, cache=True)
def mixed(key: np.uint64) -> np.uint64:
    """A hash of a key whose upper bits are the place in a table and whose lower 32 are the check."""
    h = key * _MIX
    h = (h ^ (h >> np.uint64(32))) * _MIX_2
    return h ^ (h >> np.uint64(29))


@numba.njit(nogil=True, cache=True)
def _place_shift(table: np.ndarray) -> np.uint64:
    shift = np.uint64(64)
    while len(table) > 1 << np.int64(np.uint64(64) - shift):
        shift -= np.uint64(1)
    return shift


@numba.njit(nogil=True, cache=True)
def fill(table: np.ndarray, keys: np.ndarray, costs: np.ndarray, fallbacks: np.ndarray) -> None:
    """Puts keys, uint64[n], into a table of zeros, with their costs and costs of falling back: int64[n]."""
    shift = _place_shift(table)
    for k in range(len(keys)):
        h = mixed(keys[k])
        place = np.int64(h >> shift)
        while table[place] != 0:
            place = (place + 1) & (len(table) - 1)
        check = (h | np.uint64(1)) << np.uint64(32)
        table[place] = check | np.uint64(costs[k]) << np.uint64(16) | np.uint64(fallbacks[k])


@numba.njit(nogil=True, cache=True)
def fill_vocabulary(table: np.ndarray, hashes: np.ndarray, first_id: int) -> None:
    """Puts the hashes of words, uint64[n], into a table of zeros: upper bits of the hash, then the id."""
    shift = _place_shift(table)
    for k in range(len(hashes)):
        place = np.int64((hashes[k] * _MIX) >> shift)
        while table[place] != 0:
            place = (place + 1) & (len(table) - 1)
        table[place] = hashes[k] & ~_ID_MASK | np.uint64(first_id + k)


@numba.njit(nogil=True, cache=True)
def _find_word(table: np.ndarray, shift: np.uint64, h: np.uint64, entry: np.uint64) -> np.uint64:
    """The id of a hash. entry: what stands at its place."""
    place = np.int64((h * _MIX) >> shift)
    while entry != 0 and (entry ^ h) & ~_ID_MASK != 0:
        place = (place + 1) & (len(table) - 1)
        entry = table[place]
    return entry & _ID_MASK  # UNKNOWN of an entry that is not there


@numba.njit(nogil=True, cache=True)
def _find(table: np.ndarray, shift: np.uint64, h: np.uint64, entry: np.uint64) -> np.uint64:
    """The entry of a hash, 0 if there is none. entry: what stands at its place."""
    check = (h | np.uint64(1)) & np.uint64(0xFFFFFFFF)
    place = np.int64(h >> shift)
    while entry != 0 and entry >> np.uint64(32) != check:
        place = (place + 1) & (len(table) - 1)
        entry = table[place]
    return entry


@numba.njit(nogil=True, cache=True)
def token_hashes(values: np.ndarray, begin: int, end: int, out: np.ndarray) -> int:
    """Writes the hash of each token of values[begin:end] to out: uint64; returns their number."""
    n = 0
    i = begin
    while True:
        h, _, i = next_token(values, i, end)
        if h == 0:
            return n
        out[n] = h
        n += 1


@numba.njit(nogil=True, cache=True)
def all_hashes(values: np.ndarray, offsets: np.ndarray, out: np.ndarray, ends: np.ndarray) -> int:
    """Writes the hashes of the tokens of all texts to out: uint64, and to ends, int64[n], how many there are up to each
    text's end; returns their number."""
    n = 0
    for d in range(len(offsets) - 1):
        n += token_hashes(values, offsets[d], offsets[d + 1], out[n:])
        ends[d] = n
    return n


@numba.njit(nogil=True, cache=True)
def spell_unknown(
    values: np.ndarray, offsets: np.ndarray, vocabulary: np.ndarray, seen: np.ndarray, counts: np.ndarray
) -> None:
    """Counts the pairs of bytes of words outside the vocabulary, each word once. seen: uint64[power of two] of zeros,
    at least twice as many as there are such words; counts: int64[257, 257], byte before and byte."""
    shift, seen_shift = _place_shift(vocabulary), _place_shift(seen)
    for d in range(len(offsets) - 1):
        i = offsets[d]
        while True:
            h, begin, i = next_token(values, i, offsets[d + 1])
            if h == 0:
                break
            if _find_word(vocabulary, shift, h, vocabulary[np.int64((h * _MIX) >> shift)]) != UNKNOWN:
                continue
            place = np.int64((h * _MIX) >> seen_shift)
            while seen[place] != 0 and seen[place] != h:
                place = (place + 1) & (len(seen) - 1)
            if seen[place] == h:
                continue
            seen[place] = h
            before = WORD_BEGIN
            for k in range(begin, i):
                counts[before, _FOLDED[values[k]]] += 1
                before = _FOLDED[values[k]]
            counts[before, WORD_END] += 1


@numba.njit(nogil=True, cache=True)
def ids_of(hashes: np.ndarray, vocabulary: np.ndarray, out: np.ndarray) -> None:
    """The id of each token: int64[n]."""
    shift = _place_shift(vocabulary)
    for k in range(len(hashes)):
        out[k] = _find_word(vocabulary, shift, hashes[k], vocabulary[np.int64((hashes[k] * _MIX) >> shift)])


@numba.njit(nogil=True, cache=True)
def _spelled(values: np.ndarray, begin: int, end: int, spelling: np.ndarray) -> np.int64:
    """The cost of a word's bytes."""
    cost = np.int64(0)
    before = np.int64(WORD_BEGIN)
    for k in range(begin, end):
        byte = np.int64(_FOLDED[values[k]])
        cost += spelling[before * 257 + byte]
        before = byte
    return cost + spelling[before * 257 + WORD_END]


@numba.njit(nogil=True, cache=True)
def costs(
    values: np.ndarray,
    offsets: np.ndarray,
    vocabulary: np.ndarray,
    spelling: np.ndarray,
    words: np.ndarray,
    pairs: np.ndarray,
    triples: np.ndarray,
    out: np.ndarray,
) -> None:
    """out: int64[n], the cost of each text. vocabulary, pairs, triples: tables; spelling: flat uint16[257 * 257], the
    cost of a byte behind a byte; words: uint32, cost << 16 | cost of falling back of each id."""
    word_shift, pair_shift, triple_shift = _place_shift(vocabulary), _place_shift(pairs), _place_shift(triples)
    begins, ends = np.empty(_CHUNK, np.int64), np.empty(_CHUNK, np.int64)
    hashes, entries, ids = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    pair_hashes, triple_hashes = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    pair_entries, triple_entries = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    for d in range(len(offsets) - 1):
        total = np.int64(0)
        i, end = offsets[d], offsets[d + 1]
        before_last = last = np.uint64(BEGIN)
        fallback = np.int64(0)  # of the pair that ends with the token before
        while i < end:
            n = 0
            id_before = np.int64(last)
            while n < _CHUNK:
                h, begins[n], i = next_token(values, i, end)
                if h == 0:
                    break
                hashes[n], ends[n] = h, i
                n += 1
            # Entries are fetched before they are looked at: no branch waits, and memory is asked for many at a time.
            for k in range(n):
                entries[k] = vocabulary[np.int64((hashes[k] * _MIX) >> word_shift)]
            for k in range(n):
                ids[k] = _find_word(vocabulary, word_shift, hashes[k], entries[k])
                if ids[k] == UNKNOWN:
                    total += _spelled(values, begins[k], ends[k], spelling)
            for k in range(n):
                pair = last << _SHIFT | ids[k]
                pair_hashes[k] = mixed(pair)
                triple_hashes[k] = mixed(before_last << _SHIFT << _SHIFT | pair)
                before_last, last = last, ids[k]
                pair_entries[k] = pairs[np.int64(pair_hashes[k] >> pair_shift)]
                triple_entries[k] = triples[np.int64(triple_hashes[k] >> triple_shift)]
            for k in range(n):
                pair_entry = _find(pairs, pair_shift, pair_hashes[k], pair_entries[k])
                triple_entry = _find(triples, triple_shift, triple_hashes[k], triple_entries[k])
                # Which of the three holds cannot be foreseen, so all are computed and one is chosen.
                cost = np.int64(words[id_before] & MOST_COST) + np.int64(words[np.int64(ids[k])] >> 16)
                pair_cost = np.int64(pair_entry >> np.uint64(16) & np.uint64(MOST_COST))
                cost = fallback + (pair_cost if pair_entry != 0 else cost)
                triple_cost = np.int64(triple_entry >> np.uint64(16) & np.uint64(MOST_COST))
                total += triple_cost if triple_entry != 0 else cost
                id_before = np.int64(ids[k])
                fallback = np.int64(pair_entry & np.uint64(MOST_COST))
        out[d] = total
