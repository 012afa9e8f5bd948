from typing import Any

import pytest

from stages.errors import BAD_INPUT, FAILED, OK, TRY_AGAIN
from stages.pretrain.supervision.healing import Next, after_group
from stages.pretrain.supervision.supervise import HARDWARE, HUNG, LEFT, OUT_OF_MEMORY, ROLL_BACK


def after(code: int, **changes: Any) -> Next:
    usual: dict[str, Any] = {"is_writer": False, "members_left": 2, "may_start": True, "lost_in_vain": 0}
    return after_group(code, **{**usual, "max_relaunches": 3, **changes})


@pytest.mark.parametrize("code", [-9, FAILED, HUNG])
def test_a_lost_group_is_started_again_while_others_live(code: int) -> None:
    assert after(code) is Next.HEAL
    assert after(code, is_writer=True) is Next.HEAL
    assert after(code, members_left=0) is Next.END
    assert after(code, may_start=False) is Next.END
    assert after(code, lost_in_vain=2) is Next.HEAL
    assert after(code, lost_in_vain=3) is Next.END


@pytest.mark.parametrize("code", [BAD_INPUT, ROLL_BACK, HARDWARE, OUT_OF_MEMORY, TRY_AGAIN, LEFT])
def test_what_concerns_all_groups_ends_the_attempt(code: int) -> None:
    assert after(code) is Next.END


def test_the_run_is_done_when_the_group_that_writes_is() -> None:
    assert after(OK, is_writer=True) is Next.FINISHED
    assert after(OK) is Next.GO_ON
