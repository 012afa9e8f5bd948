"""A user relies on: each item is in one bin, no bin overflows, and an item opens a new bin only where none had room."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.order.best_fit import pack


def reference(sizes: list[int], capacity: int) -> list[list[int]]:
    """Best-fit decreasing as it reads (Ding et al. 2024, algorithm 1): all bins are looked at for each item. The latest
    of those with the least room is taken, so bins are kept in the order in which they came to their room.
    """
    bins: list[tuple[int, list[int]]] = []
    numbers: dict[int, int] = {}
    for item in sorted(range(len(sizes)), key=lambda item: (-sizes[item], item)):
        fitting = [(room, -age) for age, (room, _) in enumerate(bins) if room >= sizes[item]]
        room, content = bins.pop(-min(fitting)[1]) if fitting else (capacity, [])
        content.append(item)
        numbers.setdefault(content[0], len(numbers))
        bins.append((room - sizes[item], content))
    return [content for _, content in sorted(bins, key=lambda entry: numbers[entry[1][0]])]


def packed(sizes: list[int], capacity: int) -> list[list[int]]:
    offsets, items = pack(np.array(sizes, dtype=np.int64), capacity)
    return [items[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


@settings(max_examples=150)
@given(st.integers(1, 70).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(1, c), max_size=80))))
def test_it_is_best_fit_decreasing(case: tuple[int, list[int]]) -> None:
    capacity, sizes = case
    assert packed(sizes, capacity) == reference(sizes, capacity)


def test_fuller_bins_are_filled_first() -> None:
    assert packed([5, 6, 3, 4, 2], 10) == [[1, 3], [0, 2, 4]]


def test_items_as_large_as_the_bin() -> None:
    assert packed([8, 8, 1], 8) == [[0], [1], [2]]
    assert packed([], 8) == []


def test_many_items_leave_almost_no_room() -> None:
    """Of ordinary lengths, more than 99.9 % of the bins is filled."""
    sizes = np.minimum(np.random.default_rng(0).lognormal(5, 1.3, 200_000).astype(np.int64) + 1, 1000)
    offsets, items = pack(sizes, 1000)
    fill = np.add.reduceat(sizes[items], offsets[:-1])
    assert np.array_equal(np.sort(items), np.arange(len(sizes)))
    assert fill.max() <= 1000 and fill.mean() > 999
