"""A user relies on: of ranks that wait for one another, the one at fault is named, and one that is only slow, reads, or
waits for a slow one is not ended."""

import json
from pathlib import Path

from stages.pretrain.supervision.beats import Beat, Phase
from stages.pretrain.supervision.hangs import STALLED_SECONDS, Sign, hung, last_collective, stalled


def sign(
    rank: int, changes: int, unchanged: float, *, phase: Phase = Phase.STEP, state: str = "S", silent: float = 0
) -> Sign:
    """Of a rank whose phase may last 10 s."""
    beat = Beat(100 + rank, phase, 7, 10.0, changes, 0, 0)
    return Sign(rank=rank, beat=beat, unchanged_seconds=unchanged, silent_seconds=silent, state=state)


def culprit(*signs: Sign) -> tuple[int | None, str]:
    found = hung(signs, stopped_seconds=5)
    assert found is not None
    return found.rank, found.why


def test_nothing_hangs_while_the_rank_that_is_behind_is_within_its_time() -> None:
    assert hung([], stopped_seconds=5) is None
    assert hung([sign(0, 5, 7.4), sign(1, 5, 7.4)], stopped_seconds=5) is None
    assert hung([sign(0, 5, 100), sign(1, 4, 7.4)], stopped_seconds=5) is None, "one that waits for a slow one"


def test_the_rank_that_has_got_least_far_is_at_fault() -> None:
    rank, why = culprit(sign(0, 5, 9.5), sign(1, 4, 9.6), sign(2, 5, 9.5))
    assert rank == 1 and "rank 1 is alive and gets no further" in why and "9.6 s in phase step of step 7" in why


def test_where_all_are_equally_far_nobody_is_unless_it_gives_no_sign_of_life() -> None:
    assert culprit(sign(0, 5, 9.5), sign(1, 5, 9.6))[0] is None
    rank, why = culprit(sign(0, 5, 9.5), sign(1, 5, 9.6, silent=9))
    assert rank == 1 and "no sign of life" in why


def test_a_stopped_process_is_told_from_one_that_computes_and_in_any_phase() -> None:
    rank, why = culprit(sign(0, 5, 9.5), sign(1, 5, 9.6, state="T"))
    assert rank == 1 and "is stopped" in why
    assert culprit(sign(0, 5, 5.1, phase=Phase.READING, state="T"))[0] == 0
    assert hung([sign(0, 5, 4.9, state="T")], stopped_seconds=5) is None


def test_a_rank_that_has_not_begun_is_behind_all_others() -> None:
    assert hung([sign(0, 3, 100), sign(1, -1, 5, phase=Phase.STARTING)], stopped_seconds=5) is None
    assert culprit(sign(0, 3, 1), sign(1, -1, 9.5, phase=Phase.STARTING))[0] == 1


def test_waiting_for_data_is_told_and_is_no_hang_of_its_peers() -> None:
    reading = Sign(
        rank=1,
        beat=Beat(101, Phase.READING, 7, 600.0, 4, 0, 0),
        unchanged_seconds=STALLED_SECONDS + 1,
        silent_seconds=0,
        state="S",
    )
    signs = [sign(0, 5, STALLED_SECONDS), reading]
    assert hung(signs, stopped_seconds=5) is None
    assert stalled(signs) == [reading]


def test_the_last_operation_of_a_rank_is_named(tmp_path: Path) -> None:
    assert last_collective(tmp_path, 0) == ""
    entries = [{"profiling_name": "gloo:barrier"}, {"profiling_name": "gloo:all_reduce", "input_sizes": [[3]]}]
    (tmp_path / "rank-0.json").write_text(json.dumps(entries))
    assert last_collective(tmp_path, 0) == "gloo:all_reduce [[3]] (?)"
    (tmp_path / "rank-0.json").write_text("[{")
    assert last_collective(tmp_path, 0) == ""
