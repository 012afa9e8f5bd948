"""A user relies on: every window of turns gives each its share, within a bound that is stated."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.order.turns import PERIOD, TurnTable, whole_shares, window_bound


def tijdeman(shares: list[int], num_turns: int) -> list[int]:
    """The rule as it is published, in fractions (Tijdeman 1980, section 2)."""
    count, period = len(shares), sum(shares)
    margin = Fraction(1, 2 * count - 2)
    taken, found = [0] * count, []
    for turn in range(1, num_turns + 1):
        rates = [Fraction(share, period) for share in shares]
        may = [k for k in range(count) if turn * rates[k] - taken[k] >= margin]
        found.append(min(may, key=lambda k: ((1 - margin - (turn * rates[k] - taken[k])) / rates[k], k)))
        taken[found[-1]] += 1
    return found


@settings(max_examples=60)
@given(st.lists(st.integers(1, 60), min_size=2, max_size=7))
def test_the_table_is_tijdemans(shares: list[int]) -> None:
    assert TurnTable(tuple(shares)).owner.tolist() == tijdeman(shares, sum(shares))


def strays(owner: np.ndarray, table: TurnTable) -> float:
    """The most that a window of two periods is off the shares."""
    turns = np.tile(owner, 2)
    most = 0.0
    for k, share in enumerate(table.shares):
        ahead = np.cumsum(turns == k) - np.arange(1, len(turns) + 1) * share / table.period
        most = max(most, ahead.max(initial=0) - ahead.min(initial=0))
    return most


@settings(max_examples=60)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=9))
def test_every_window_is_within_the_bound(shares: list[int]) -> None:
    table = TurnTable(tuple(shares))
    assert strays(table.owner, table) <= window_bound(len(shares)) + 1e-9


def test_turns_drawn_by_lot_are_not_within_the_bound() -> None:
    table = TurnTable((500, 300, 200))
    assert strays(np.random.default_rng(0).permutation(table.owner), table) > 10 * window_bound(3)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(0, 10_000))
def test_turns_of_any_position_without_those_before(shares: list[int], position: int) -> None:
    table = TurnTable(tuple(shares))
    turns = np.resize(table.owner, position + 1)
    assert table.turns_before(position).tolist() == np.bincount(turns[:-1], minlength=len(shares)).tolist()
    assert table.owner_and_turn(position) == (turns[-1], int((turns[:-1] == turns[-1]).sum()))


def test_positions_beyond_32_bits() -> None:
    table = TurnTable((3, 2))
    assert table.turns_before(5 * 2**40).tolist() == [3 * 2**40, 2 * 2**40]
    owner, turn = table.owner_and_turn(5 * 2**40)
    assert turn == (3 * 2**40, 2 * 2**40)[owner]


@settings(max_examples=100)
@given(st.lists(st.floats(1e-9, 1e9), min_size=2, max_size=12))
def test_shares_add_up_and_none_is_zero(weights: list[float]) -> None:
    shares = whole_shares(weights)
    assert sum(shares) == PERIOD and min(shares) >= 1
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share / PERIOD - weight / sum(weights)) < len(weights) / PERIOD


def test_a_tiny_weight_still_gets_its_turn() -> None:
    assert whole_shares([1, 1e-12]) == (PERIOD - 1, 1)
    assert np.bincount(TurnTable((PERIOD - 1, 1)).owner).tolist() == [PERIOD - 1, 1]


def test_no_share_is_refused() -> None:
    with pytest.raises(AssertionError, match="no shares"):
        TurnTable((3, 0))
