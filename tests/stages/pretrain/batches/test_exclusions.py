"""A user relies on: a state goes on only with the batches left out that were left out on its way."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import InputError
from data.order.batches import Phase, SampleOrder
from stages.pretrain.batches.exclusions import Draws, Exclusion, before, draws, read_exclusions, write_exclusions


def order(excluded: Draws) -> SampleOrder:
    phase = Phase(first_step=0, weights={"a": 1.0}, longest_tokens=4, batch_tokens=8)
    return SampleOrder(seed=0, num_sequences={"a": {4: 9}}, phases=[phase], excluded=excluded)


@st.composite
def ranges(draw: st.DrawFn) -> Draws:
    borders = sorted(draw(st.sets(st.integers(0, 40), max_size=8)))
    return tuple(zip(borders[::2], borders[1::2], strict=False))


@given(ranges(), ranges(), st.integers(1, 30))
def test_states_with_the_same_past_have_taken_the_same_draws(one: Draws, other: Draws, step: int) -> None:
    """And a past that differs shows: in each direction this is what a resume relies on."""
    orders = order(one), order(other)
    past = [before(excluded, found.draw(step - 1)) for excluded, found in zip((one, other), orders, strict=True)]
    taken = [[found.draw(number) for number in range(step)] for found in orders]
    assert (past[0] == past[1]) == (taken[0] == taken[1]) or _adjacent(one) or _adjacent(other)
    if past[0] == past[1]:
        assert taken[0] == taken[1]


def _adjacent(excluded: Draws) -> bool:
    """Whether two ranges could be written as one."""
    return any(a[1] == b[0] for a, b in zip(excluded, excluded[1:], strict=False))


def test_a_range_right_behind_the_last_draw_is_no_past() -> None:
    excluded = ((3, 5), (7, 8))
    found = order(excluded)
    assert [found.draw(number) for number in range(5)] == [0, 1, 2, 5, 6]
    assert [before(excluded, found.draw(step - 1)) for step in (3, 4, 5, 6)] == [
        (), ((3, 5),), ((3, 5),), ((3, 5), (7, 8))
    ]  # fmt: skip


def test_the_file_keeps_the_order_of_decisions_and_the_run_gets_them_ascending(tmp_path: Path) -> None:
    path = tmp_path / "excluded.json"
    assert read_exclusions(path) == ()
    made = (Exclusion(first=30, last=31, step=31), Exclusion(first=5, last=6, step=6))
    write_exclusions(path, made)
    assert read_exclusions(path) == made
    assert draws(made) == ((5, 6), (30, 31))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[{", "EOF"),
        ('[{"first": 1, "step": 2}]', "last"),
        ('[{"first": 5, "last": 5, "step": 6}]', "last = 5 must be above first = 5"),
        ('[{"first": -1, "last": 5, "step": 6}]', "greater than or equal to 0"),
        (
            '[{"first": 7, "last": 8, "step": 8}, {"first": 3, "last": 9, "step": 4}]',
            "7 to 7 are left out twice",
        ),
    ],
)
def test_a_file_that_says_no_ranges_is_named_with_what_mends_it(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "excluded.json"
    path.write_text(content)
    with pytest.raises(InputError, match=problem) as refused:
        read_exclusions(path)
    assert str(path) in str(refused.value) and "mend it" in str(refused.value)
