from functools import partial

import pytest

from stages.errors import BAD_INPUT, FAILED, TRY_AGAIN
from stages.pretrain.supervision.supervise import Action, Ending, decide


def ending(exit_code: int, step: int = 50, checkpoint_step: int = 40, draw: int | None = None) -> Ending:
    return Ending(exit_code=exit_code, cause="why", step=step, checkpoint_step=checkpoint_step, draw=draw)


decide = partial(decide, max_exclusions=2)


@pytest.mark.parametrize(
    ("code", "action", "exit_code"),
    [
        (0, Action.DONE, 0),
        (2, Action.STOP, BAD_INPUT),
        (70, Action.ROLL_BACK, 0),
        (71, Action.STOP, FAILED),
        (75, Action.STOP, TRY_AGAIN),
        (1, Action.RELAUNCH, 0),
        (-9, Action.RELAUNCH, 0),
        (137, Action.RELAUNCH, 0),
    ],
)
def test_the_first_ending_of_each_kind(code: int, action: Action, exit_code: int) -> None:
    decision = decide(ending(code), [], max_relaunches=3)
    assert (decision.action, decision.exit_code) == (action, exit_code)
    assert code == 0 or "why" in decision.reason


def test_crashes_that_get_no_further_are_bounded() -> None:
    past = [ending(1)] * 3
    assert decide(ending(1), past[:2], max_relaunches=3).action is Action.RELAUNCH
    decision = decide(ending(1), past, max_relaunches=3)
    assert (decision.action, decision.exit_code) == (Action.STOP, FAILED)
    assert decide(ending(1), [], max_relaunches=0).action is Action.STOP


def test_crashes_with_progress_between_them_are_not() -> None:
    past = [ending(1, checkpoint_step=step) for step in range(0, 400, 10)]
    assert decide(ending(1, checkpoint_step=400), past, max_relaunches=1).action is Action.RELAUNCH


def test_a_batch_that_is_not_finite_twice_is_left_out() -> None:
    decision = decide(ending(70, step=50, draw=50), [ending(70, step=50, draw=50)], max_relaunches=3)
    assert decision.action is Action.EXCLUDE and "came back when the same data was replayed" in decision.reason


def test_what_comes_back_on_other_data_ends_the_run_at_once() -> None:
    past = [ending(70, step=50, draw=50)] * 2
    decision = decide(ending(70, step=50, draw=51), past, max_relaunches=3, excluded_steps=[51])
    assert (decision.action, decision.exit_code) == (Action.STOP, FAILED)
    assert "other data" in decision.reason and "pretrain.learning_rate" in decision.reason


def test_only_so_many_batches_are_left_out() -> None:
    past = [ending(70, step=90, draw=92)]
    for steps, action in (([51], Action.EXCLUDE), ([51, 61], Action.STOP)):
        found = decide(ending(70, step=90, draw=92), past, max_relaunches=3, excluded_steps=steps)
        assert found.action is action
    assert "2 batches are left out already (pretrain.max_exclusions = 2): raise pretrain.max_exclusions" in found.reason


def test_a_run_that_may_leave_nothing_out_says_so() -> None:
    found = decide(ending(70, draw=50), [ending(70, draw=50)], max_relaunches=3, max_exclusions=0)
    assert (found.action, found.exit_code) == (Action.STOP, FAILED)
    assert "no batch may be left out (pretrain.max_exclusions = 0): raise pretrain.max_exclusions" in found.reason


def test_a_heldout_loss_that_is_not_finite_twice_ends_the_run() -> None:
    """No batch is to blame for it."""
    decision = decide(ending(70, step=50), [ending(70, step=50)], max_relaunches=3, excluded_steps=[51])
    assert (decision.action, decision.exit_code) == (Action.STOP, FAILED)
    assert "came back" in decision.reason and "learning_rate" in decision.reason


def test_rollbacks_that_an_exclusion_has_mended_do_not_count() -> None:
    past = [ending(70, step=step, draw=step) for step in (10, 10, 20, 20)]
    new = ending(70, step=30, draw=32)
    assert decide(new, past, max_relaunches=1, excluded_steps=[11, 21]).action is Action.ROLL_BACK
    assert decide(new, past, max_relaunches=1, excluded_steps=[11]).action is Action.STOP


def test_rollbacks_are_bounded() -> None:
    past = [ending(70, step=step) for step in (10, 20, 30)]
    assert decide(ending(70), past[:2], max_relaunches=3).action is Action.ROLL_BACK
    assert decide(ending(70), past, max_relaunches=3).action is Action.STOP


def test_a_crash_after_a_rollback_is_judged_as_a_crash() -> None:
    assert decide(ending(1), [ending(70, checkpoint_step=10)], max_relaunches=1).action is Action.RELAUNCH
