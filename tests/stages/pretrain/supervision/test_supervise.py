from functools import partial

import pytest

from stages.errors import BAD_INPUT, FAILED, TRY_AGAIN
from stages.pretrain.supervision.supervise import (
    HUNG,
    LEFT,
    MOST_DELAY_SECONDS,
    OUT_OF_MEMORY,
    Action,
    Ending,
    Request,
    decide,
)


def ending(
    exit_code: int,
    step: int = 50,
    checkpoint_step: int = 40,
    draw: int | None = None,
    rank: int | None = None,
    requested: Request = Request.NONE,
) -> Ending:
    return Ending(
        exit_code=exit_code,
        cause="why",
        step=step,
        checkpoint_step=checkpoint_step,
        draw=draw,
        rank=rank,
        requested=requested,
    )


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
        (HUNG, Action.RELAUNCH, 0),
        (LEFT, Action.RELAUNCH, 0),  # though nobody asked
    ],
)
def test_the_first_ending_of_each_kind(code: int, action: Action, exit_code: int) -> None:
    decision = decide(ending(code), [], max_relaunches=3)
    assert (decision.action, decision.exit_code) == (action, exit_code)
    assert code == 0 or "why" in decision.reason


def test_want_of_memory_stops_the_run_unless_the_memory_did_suffice_before() -> None:
    """The first two ends are of the same settings before the first checkpoint, and after one."""
    without = partial(ending, OUT_OF_MEMORY)
    first = decide(without(checkpoint_step=0), [], max_relaunches=3)
    assert (first.action, first.exit_code) == (Action.STOP, BAD_INPUT)
    assert decide(without(checkpoint_step=40), [], max_relaunches=3).action is Action.RELAUNCH
    again = decide(without(checkpoint_step=40), [without(checkpoint_step=40)], max_relaunches=3)
    assert (again.action, again.exit_code) == (Action.STOP, BAD_INPUT)
    past = [without(checkpoint_step=step) for step in range(10, 400, 10)]
    assert decide(without(checkpoint_step=400), past, max_relaunches=0).action is Action.RELAUNCH


def test_crashes_that_get_no_further_are_bounded() -> None:
    past = [ending(1)] * 3
    assert decide(ending(1), past[:2], max_relaunches=3).action is Action.RELAUNCH
    decision = decide(ending(1), past, max_relaunches=3)
    assert (decision.action, decision.exit_code) == (Action.STOP, FAILED)
    assert decide(ending(1), [], max_relaunches=0).action is Action.STOP


def test_ranks_that_leave_although_nobody_asked_are_bounded_too() -> None:
    assert decide(ending(LEFT), [ending(LEFT)] * 3, max_relaunches=3).action is Action.STOP


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


def test_relaunches_that_get_no_further_wait_longer_and_longer() -> None:
    def delay(*past: Ending) -> float:
        return decide(ending(-9), past, max_relaunches=99).delay_seconds

    assert [delay(*[ending(1)] * number) for number in range(5)] == [0, 1, 2, 4, 8]
    assert delay(*[ending(HUNG)] * 50) == MOST_DELAY_SECONDS
    assert delay(*[ending(1)] * 7, ending(1, checkpoint_step=30)) == 0, "a new checkpoint stands between"
    assert delay(ending(1), ending(LEFT, requested=Request.RESIZE)) == 1, "leaving on request is no crash"


@pytest.mark.parametrize("code", [LEFT, -9, 1, HUNG, 75, 70])
def test_a_run_that_is_asked_to_stop_stops_however_its_ranks_ended(code: int) -> None:
    decision = decide(ending(code, step=50, checkpoint_step=50, requested=Request.STOP), [], max_relaunches=3)
    assert (decision.action, decision.exit_code) == (Action.STOP, TRY_AGAIN)
    assert decision.reason == "stopped on request after step 50; the same command goes on from there"


def test_steps_that_a_stop_has_lost_are_told() -> None:
    decision = decide(ending(-9, step=50, checkpoint_step=40, requested=Request.STOP), [], max_relaunches=3)
    assert "after step 40 (the 10 steps since then are lost: why)" in decision.reason


def test_a_run_that_is_done_or_wrong_says_so_though_it_was_asked_to_stop() -> None:
    assert decide(ending(0, requested=Request.STOP), [], max_relaunches=3).action is Action.DONE
    assert decide(ending(2, requested=Request.STOP), [], max_relaunches=3).exit_code == BAD_INPUT


def test_ranks_that_left_for_another_number_of_processes_are_relaunched_without_counting() -> None:
    past = [ending(LEFT, requested=Request.RESIZE)] * 9
    decision = decide(ending(LEFT, requested=Request.RESIZE), past, max_relaunches=0)
    assert (decision.action, decision.delay_seconds) == (Action.RELAUNCH, 0)
    assert decide(ending(1), past, max_relaunches=1).action is Action.RELAUNCH


def test_a_run_that_may_shrink_goes_on_without_the_process_whose_hardware_is_suspected() -> None:
    decision = decide(ending(71, rank=2), [], max_relaunches=3, may_shrink=True)
    assert (decision.action, decision.without) == (Action.RELAUNCH, 2)
    assert decide(ending(71), [], max_relaunches=3, may_shrink=True).action is Action.STOP, "nobody knows which"
