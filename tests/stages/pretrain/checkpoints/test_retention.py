"""A user relies on: what a rollback, a restart or an evaluation will want is never deleted, and the rest is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.pretrain.checkpoints.retention import kept, num_kept

STEPS = range(10, 201, 10)


def of(**changes: Any) -> set[int]:
    settings: dict[str, Any] = {
        "newest": 2,
        "losses": {},
        "healthy": [],
        "durable": STEPS[4::5],
        "keep_every": None,
    }
    return kept(STEPS, **{**settings, **changes})


def test_the_newest_stay() -> None:
    assert of() == {190, 200}
    assert of(newest=1) == {200}


def test_the_newest_healthy_one_stays_to_roll_back_to() -> None:
    assert of(healthy=[10, 50, 120]) == {120, 190, 200}


def test_the_best_by_held_out_loss_stays_and_of_equal_ones_the_later() -> None:
    assert of(losses={50: 2.5, 100: 2.0, 150: 3.0}) == {100, 190, 200}
    assert of(losses={50: 2.0, 100: 2.0, 150: 3.0}) == {100, 190, 200}
    assert of(losses={55: 1.0, 150: 3.0}) == {150, 190, 200}, "one that is not there is not the best"


def test_of_the_durable_ones_every_nth_stays_whatever_was_deleted_before() -> None:
    assert of(keep_every=2) == {100, 190, 200}
    assert kept([100, 150, 190, 200], newest=1, losses={}, healthy=[], durable=STEPS[4::5], keep_every=2) == {100, 200}
    assert of(keep_every=1) == {50, 100, 150, 190, 200}


def test_what_is_still_to_be_done_something_with_stays() -> None:
    assert of(pending=[50, 60, 999]) == {50, 60, 190, 200}


@given(st.sets(st.integers(1, 300), min_size=1), st.data())
def test_a_rule_applied_as_checkpoints_come_ends_where_it_ends_applied_once(steps: set[int], data: Any) -> None:
    """So deleting early never deletes what would be kept later; only the best and the newest can change on the way."""
    losses = {step: data.draw(st.floats(1, 9)) for step in steps}
    rule: dict[str, Any] = {"newest": 2, "losses": losses, "durable": sorted(steps), "keep_every": 3}
    there: set[int] = set()
    for step in sorted(steps):
        there = kept(there | {step}, healthy=there, **rule)
    assert there == kept(steps, healthy=sorted(steps)[:-1], **rule)


@pytest.mark.parametrize("keep_every", [None, 1, 3])
def test_the_cost_at_the_end_is_an_upper_bound_that_is_reached(keep_every: int | None) -> None:
    most = num_kept(STEPS, newest=2, keep_every=keep_every)
    found = [
        len(kept(STEPS, newest=2, losses={best: 1.0}, healthy=STEPS, durable=STEPS, keep_every=keep_every))
        for best in STEPS
    ]
    assert max(found) == most
