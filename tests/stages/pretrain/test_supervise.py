import pytest

from stages.errors import BAD_INPUT, FAILED, TRY_AGAIN
from stages.pretrain.supervise import Action, Ending, decide


def ending(exit_code: int, step: int = 50, checkpoint_step: int = 40) -> Ending:
    return Ending(exit_code=exit_code, cause="why", step=step, checkpoint_step=checkpoint_step)


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


def test_an_anomaly_that_comes_back_on_replay_ends_the_run() -> None:
    decision = decide(ending(70, step=50), [ending(70, step=50)], max_relaunches=3)
    assert (decision.action, decision.exit_code) == (Action.STOP, FAILED)
    assert "came back" in decision.reason


def test_rollbacks_are_bounded() -> None:
    past = [ending(70, step=step) for step in (10, 20, 30)]
    assert decide(ending(70), past[:2], max_relaunches=3).action is Action.ROLL_BACK
    assert decide(ending(70), past, max_relaunches=3).action is Action.STOP


def test_a_crash_after_a_rollback_is_judged_as_a_crash() -> None:
    assert decide(ending(1), [ending(70, checkpoint_step=10)], max_relaunches=1).action is Action.RELAUNCH
