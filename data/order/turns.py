"""Taking turns by shares, so that no window strays far from them.

    table = turn_table(whole_shares([0.7, 0.3]))
    table.owner_and_turn(10**12)            # whose turn it is, and how many turns of its own it had before
    table.turns_before(10**12)              # of each, in closed form

The table is made by Tijdeman's rule for the chairman assignment problem (R. Tijdeman, The chairman assignment problem,
Discrete Mathematics 32, 1980): after any number n of turns each of k has had its share of n within 1 - 1/(2k - 2)
turns, so that any window is within `window_bound(k)` < 2 turns of its shares. It repeats after PERIOD turns, where all
are even. Its shares are whole numbers of turns: whoever asks for less than 1/PERIOD gets that much all the same.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

PERIOD = 2**18


def whole_shares(weights: Sequence[float]) -> tuple[int, ...]:
    """Whole numbers in proportion to positive weights, each at least 1, which sum to PERIOD (largest remainder). One
    alone has a period of 1.
    """
    assert 0 < len(weights) <= PERIOD, f"{len(weights)} shares of {PERIOD}"
    if len(weights) == 1:
        return (1,)
    total = math.fsum(weights)
    exact = [weight / total * PERIOD for weight in weights]
    shares = [max(1, math.floor(share)) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: (math.floor(exact[i]) - exact[i], i))
    for index in by_remainder[: max(0, PERIOD - sum(shares))]:
        shares[index] += 1
    while sum(shares) > PERIOD:
        shares[shares.index(max(shares))] -= 1
    return tuple(shares)


def window_bound(count: int) -> float:
    """How many turns each of `count` may be off its share of any window of turns."""
    return 2 * (1 - 1 / (2 * count - 2)) if count > 1 else 0.0


@functools.lru_cache(maxsize=16)
def turn_table(shares: tuple[int, ...]) -> "TurnTable":
    """The table of these shares; the latest few are kept, 2 MiB each."""
    return TurnTable(shares)


class TurnTable:
    """shares: turns of each in a period. owner: int32[period], whose turn it is; earlier: int32[period], how many
    turns it had before in the period. None is to be written to.
    """

    def __init__(self, shares: tuple[int, ...]) -> None:
        """shares: positive; the period is their sum."""
        from data.order.order_kernels import fill_turns

        assert min(shares) > 0, f"{shares} are no shares"
        self.shares = np.array(shares, dtype=np.int64)
        self.period = sum(shares)
        assert self.period <= PERIOD, f"a period of {self.period} turns"
        self.owner = np.zeros(self.period, dtype=np.int32)
        self.earlier = np.arange(self.period, dtype=np.int32)
        if len(shares) > 1:
            fill_turns(self.shares, self.owner, self.earlier)
        assert np.array_equal(np.bincount(self.owner), self.shares), "the table does not give each its share"
        for array in (self.shares, self.owner, self.earlier):
            array.setflags(write=False)

    def owner_and_turn(self, position: int) -> tuple[int, int]:
        """Whose turn it is at a position, from 0, and which of its own turns this is, from 0. O(1)."""
        cycle, slot = divmod(position, self.period)
        owner = int(self.owner[slot])
        return owner, cycle * int(self.shares[owner]) + int(self.earlier[slot])

    def turns_before(self, position: int) -> np.ndarray:
        """int64[k]: turns of each before a position. O(period), however far the position."""
        cycle, slot = divmod(position, self.period)
        return cycle * self.shares + np.bincount(self.owner[:slot], minlength=len(self.shares)).astype(np.int64)
