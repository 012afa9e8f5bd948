"""Kernels of the order: a keyed permutation that gives any element at once, samples of a range of positions, and
Tijdeman's turns. All in whole numbers of 64 bits, so that every machine finds the same.
"""

import numba
import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
ROUNDS = 8
LEAST_BITS = 6


@numba.njit(nogil=True, cache=True)
def mixed(value: np.uint64) -> np.uint64:
    """SplitMix64's finalizer."""
    value = (value ^ (value >> np.uint64(30))) * _FIRST_FACTOR
    value = (value ^ (value >> np.uint64(27))) * _SECOND_FACTOR
    return value ^ (value >> np.uint64(31))


@numba.njit(nogil=True, cache=True)
def fill_round_keys(key: np.uint64, round_keys: np.ndarray) -> None:
    """round_keys: uint64[ROUNDS], written."""
    for i in range(ROUNDS):
        key = mixed(key + GOLDEN)
        round_keys[i] = key


@numba.njit(nogil=True, cache=True)
def bits_of(size: int) -> int:
    """The bits of the largest number below size, and some more where it is small: networks of very few bits miss many
    permutations, which chi-square tests of places and of neighbours show.
    """
    bits = LEAST_BITS if size > 1 else 0
    while bits < 63 and (1 << bits) < size:
        bits += 1
    return bits


@numba.njit(nogil=True, cache=True)
def permuted(place: int, size: int, bits: int, round_keys: np.ndarray) -> int:
    """Where the permutation of range(size) puts a place. bits: `bits_of(size)`. round_keys: uint64[ROUNDS].

    A Feistel network over 2^bits values, whose halves differ by a bit where bits is odd, applied until the value is
    below size (cycle walking): less than twice on average, except for small sizes.
    """
    right_bits = np.uint64(bits // 2)
    right_mask = (np.uint64(1) << right_bits) - np.uint64(1)
    left_mask = (np.uint64(1) << np.uint64(bits - bits // 2)) - np.uint64(1)
    value = np.uint64(place)
    while True:
        left, right = value >> right_bits, value & right_mask
        for i in range(0, ROUNDS, 2):
            left ^= mixed(right ^ round_keys[i]) & left_mask
            right ^= mixed(left ^ round_keys[i + 1]) & right_mask
        value = (left << right_bits) | right
        if value < np.uint64(size):
            return int(value)


@numba.njit(nogil=True, cache=True)
def permute_places(places: np.ndarray, size: int, keys: np.ndarray, result: np.ndarray) -> None:
    """places, result: int64[n]. keys: uint64[n], or uint64[1] for all of them."""
    bits = bits_of(size)
    round_keys = np.empty(ROUNDS, np.uint64)
    for i in range(len(places)):
        if i < len(keys):
            fill_round_keys(keys[i], round_keys)
        result[i] = permuted(places[i], size, bits, round_keys)


@numba.njit(nogil=True, cache=True)
def epoch_key(key: np.uint64, epoch: int) -> np.uint64:
    """The key of an epoch's permutation of a pool with a key."""
    return mixed(key ^ mixed(np.uint64(epoch) + GOLDEN))


@numba.njit(nogil=True, cache=True)
def fill_samples(
    first: int,
    owner: np.ndarray,
    earlier: np.ndarray,
    slots: np.ndarray,
    bases: np.ndarray,
    sizes: np.ndarray,
    keys: np.ndarray,
    members: np.ndarray,
    domain: np.ndarray,
    sequence: np.ndarray,
    epoch: np.ndarray,
) -> None:
    """The samples at positions first, first + 1, ... of a series of turns.

    owner, earlier: int32[period], as of `data.order.turns.TurnTable`. slots, bases, sizes: int64[k]: of each pool its
    turns in a period, its turns before the series, its sequences. keys: uint64[k]. members: int32[k], what is written
    for it. domain: int32[n], sequence, epoch: int64[n]: written.
    """
    period = np.int64(len(owner))
    count = len(sizes)
    bits = np.empty(count, np.int64)
    round_keys = np.empty((count, ROUNDS), np.uint64)
    epochs = np.full(count, -1, np.int64)
    places = np.empty(count, np.int64)
    for k in range(count):
        bits[k] = bits_of(sizes[k])
    cycle = np.int64(first) // period
    slot = np.int64(first) - cycle * period
    for i in range(len(domain)):
        k = owner[slot]
        if epochs[k] < 0:
            turn = bases[k] + cycle * slots[k] + np.int64(earlier[slot])
            epochs[k] = turn // sizes[k]
            places[k] = turn - epochs[k] * sizes[k]
            fill_round_keys(epoch_key(keys[k], epochs[k]), round_keys[k])
        elif places[k] == sizes[k]:
            epochs[k] += 1
            places[k] = 0
            fill_round_keys(epoch_key(keys[k], epochs[k]), round_keys[k])
        domain[i] = members[k]
        epoch[i] = epochs[k]
        sequence[i] = permuted(places[k], sizes[k], bits[k], round_keys[k])
        places[k] += 1
        slot += 1
        if slot == period:
            slot = np.int64(0)
            cycle += 1


@numba.njit(nogil=True, cache=True)
def fill_turns(slots: np.ndarray, owner: np.ndarray, earlier: np.ndarray) -> None:
    """Tijdeman's rule. slots: int64[k], k >= 2, which sum to the period. owner, earlier: int32[period], written.

    Among those that may take turn t without getting too far ahead, the one that would first fall too far behind; of
    two equal ones the first. The products stay below period^2 * 2k.
    """
    period = np.int64(len(owner))
    count = len(slots)
    scale = np.int64(2 * count - 2)
    taken = np.zeros(count, np.int64)
    for turn in range(period):
        chosen, best_slack, best_share = -1, np.int64(0), np.int64(1)
        for k in range(count):
            behind = (turn + 1) * slots[k] - taken[k] * period
            if behind * scale < period:
                continue
            slack = period * (scale - 1) - behind * scale
            if chosen < 0 or slack * best_share < best_slack * slots[k]:
                chosen, best_slack, best_share = k, slack, slots[k]
        owner[turn] = chosen
        earlier[turn] = taken[chosen]
        taken[chosen] += 1
