"""A user relies on: every second of a run has one cause, whatever was killed when; here against a simulated run that
keeps its own account."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stages.pretrain.monitor.records import cut_back
from stages.pretrain.supervision.moments import Kind
from stages.pretrain.supervision.spent import checkpoint_costs
from tests.stages.pretrain.supervision.accounted import (
    BLOCKED,
    HELDOUT,
    START,
    STEP,
    UNDER_WAY,
    WAIT,
    Killed,
    World,
    check,
    lived,
)

ENDS = ((Kind.KILL, 5), (Kind.HANG, 4), (Kind.NOT_FINITE, 2), (Kind.REQUEST, 3), (Kind.DONE, 4))


def test_every_second_of_a_run_has_its_cause(tmp_path: Path) -> None:
    world = World(tmp_path)
    lived(world, *ENDS)
    found = world.account().spent()
    check(world, found)
    assert found.attempts == 5
    kill, hang, anomaly, request = found.ends
    assert (kill["kind"], kill["resumed_step"], kill["replayed_steps"]) == ("kill", 3, 2)
    assert kill["replayed_seconds"] == pytest.approx(2 * STEP + UNDER_WAY)
    assert kill["recovered_seconds"] == pytest.approx(2.0 + 0.25 + START + STEP + WAIT + BLOCKED + HELDOUT)
    assert (hang["replayed_steps"], hang["replayed_seconds"]) == (1, STEP)
    assert (anomaly["replayed_steps"], request["replayed_steps"]) == (2, 0)


def test_a_supervisor_that_is_killed_anywhere_loses_no_second_of_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that follows goes on counting; what was between them is "down". Twice, so that a kill may hit what is
    still being mended from the one before."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    whole = World(tmp_path)
    ends = (Kind.KILL, 4), (Kind.NOT_FINITE, 2), (Kind.DONE, 2)
    lived(whole, *ends)
    for first in range(1, whole.points + 1):
        for second in (None, 2, 3):
            folder = tmp_path / f"{first}-{second}"
            folder.mkdir()
            world = World(folder)
            for dies_at in (first, second):
                world.points, world.dies_at = 0, dies_at
                try:
                    lived(world, *ends)
                    break
                except Killed:
                    running = sum(1 for event in world_events(world) if event["event"] == "begin") > sum(
                        1 for event in world_events(world) if event["event"] == "end"
                    )
                    world.passes(100.0, "down")
                    if running:
                        world.go_back(Kind.SUPERVISOR)
            else:
                world.dies_at = None
                lived(world, (Kind.DONE, 2))
            found = world.account().spent()
            assert sum(found.seconds.values()) == pytest.approx(found.wall_seconds, abs=1e-9)
            assert found.seconds["productive"] == pytest.approx(sum(world.kept.values()))
            assert found.seconds.get("down", 0.0) >= 100.0 * (second is not None)


def world_events(world: World) -> list[dict[str, Any]]:
    path = world.run.path / "attempts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("seconds", [9e6, -9e6])
def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path, seconds: float) -> None:
    world = World(tmp_path)
    lived(world, (Kind.KILL, 2))
    world.passes(30.0, "down")
    world.time += seconds
    lived(world, (Kind.DONE, 2))
    found = world.account().spent()
    check(world, found)
    assert found.seconds["down"] == pytest.approx(30.0)


def test_steps_of_a_machine_that_was_lost_count_as_far_as_they_were_brought_back(tmp_path: Path) -> None:
    """Its last sign of life was lost with it."""
    world = World(tmp_path)
    world.dies_at = 9
    with pytest.raises(Killed):
        lived(world, (Kind.DONE, 9))
    (tmp_path / "alive.json").unlink()
    killed_after = max(world.kept)
    world.boot, world.clock, world.checkpoint = "second", 1.0, max(world.kept)
    world.time += 500
    lived(world, (Kind.DONE, 2))
    found = world.account().spent()
    assert found.seconds["productive"] == pytest.approx(STEP * len(world.kept))
    assert found.seconds["down"] == pytest.approx(500.0) and found.ends[0]["kind"] == "supervisor"
    notes = [event["text"] for event in world.events if event["kind"] == "note"]
    assert notes == [f"the supervisor before this one was killed after step {killed_after}, 500 s ago"]


@pytest.mark.parametrize(("passed", "down"), [(40.0, 40.0), (-500.0, 0.0)])
def test_after_a_reboot_the_wall_clock_counts_and_never_backwards(tmp_path: Path, passed: float, down: float) -> None:
    world = World(tmp_path)
    lived(world, (Kind.KILL, 2))
    world.time += passed
    world.clock, world.boot = 3.0, "second"
    lived(world, (Kind.DONE, 2))
    found = world.account().spent()
    assert found.seconds["down"] == pytest.approx(down)
    assert sum(found.seconds.values()) == pytest.approx(found.wall_seconds, abs=1e-9)


def test_an_attempt_that_goes_on_is_counted_while_it_does(tmp_path: Path) -> None:
    world = World(tmp_path)
    account = world.begun()
    world.step(1, save=False)
    account.poll()
    world.passes(70.0, "under way")
    account.poll()
    check(world, account.spent())
    told = world.events[-1]
    assert told["kind"] == "account" and told["lost_seconds"]["under way"] == 70.0
    assert told["effective_training_time"] == pytest.approx(STEP / (START + STEP + WAIT + 70.0), abs=1e-4)


def test_an_attempt_that_its_supervisor_gives_up_is_counted_to_its_end(tmp_path: Path) -> None:
    """As when a checkpoint cannot be published, or somebody will not wait for the last one."""
    world = World(tmp_path)
    account = world.begun()
    world.step(1, save=False)
    account.poll()
    world.passes(STEP, "replayed: supervisor")  # of the step that is cut off
    account.closed()
    world.passes(7.0, "down")
    again = world.account()
    check(world, again.spent())
    again.resuming(0)
    world.go_back(Kind.SUPERVISOR)
    check(world, again.spent())
    (end,) = again.spent().ends
    assert (end["kind"], end["step"], end["replayed_steps"]) == ("supervisor", 1, 1)


def test_a_hang_counts_from_the_last_step_and_recovery_from_when_it_was_noticed(tmp_path: Path) -> None:
    world = World(tmp_path)
    account = world.begun()
    world.step(1, save=False)
    account.poll()
    world.passes(8.0, "hang")
    noticed = world.clock
    world.passes(1.5, "hang")  # its stacks are dumped
    account.ended(
        Kind.HANG, cause="rank 1 stands still", step=1, decision="relaunch", noticed_at=noticed, silent_seconds=8.0
    )
    account.resuming(0)
    cut_back(world.run, 0)
    world.go_back(Kind.HANG)
    account.began(num_processes=1)
    world.passes(START, "starting")
    world.step(1, save=False)
    account.poll()
    account.ended(Kind.DONE, cause="", step=1, decision="done")
    found = account.spent()
    check(world, found)
    assert found.ends[0]["noticed_seconds"] == 8.0
    assert found.ends[0]["recovered_seconds"] == pytest.approx(1.5 + START + STEP + WAIT)


def test_a_replica_group_that_heals_ends_no_attempt(tmp_path: Path) -> None:
    world = World(tmp_path)
    account = world.account()
    account.resuming(0)
    account.began(num_processes=3)
    account.group_joined(0)
    world.passes(START, "starting")
    world.step(1, save=False)
    account.poll()
    account.group_lost(2, cause="killed", step=1)
    for step in (2, 3, 4):
        world.step(step, save=False)
        account.poll()
    account.group_joined(2)
    account.group_lost(1, cause="killed", step=4)
    world.step(5, save=False)
    world.passes(UNDER_WAY, "replayed: supervisor")
    account.poll()
    world.passes(9.0, "down")
    world.checkpoint = 5
    lived(world, (Kind.DONE, 1))
    found = world.account().spent()
    check(world, found)
    healed, lost, supervisor = found.ends
    assert (healed["kind"], healed["step"], healed["recovered_seconds"]) == ("group", 1, 3 * (STEP + WAIT))
    assert "recovered_seconds" not in lost and supervisor["resumed_step"] == 5
    assert found.figures()["incidents"] == 3 and found.attempts == 2


def test_an_end_before_the_first_step_delays_the_recovery_from_the_one_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    lived(world, (Kind.KILL, 2), (Kind.KILL, 0), (Kind.DONE, 1))
    found = world.account().spent()
    check(world, found)
    first, second = (end["recovered_seconds"] for end in found.ends)
    assert second == pytest.approx(2.0 + 0.25 + START + STEP + WAIT)
    assert first == pytest.approx(second + 2.0 + 0.25 + START + UNDER_WAY)


def test_costs_of_checkpoints_are_told_by_tier() -> None:
    line = {"step": 3, "durable": False, "staged_seconds": 0.1, "blocked_seconds": 0.1, "waited_seconds": 0.0,
            "heldout_seconds": 0.0, "seconds": 4.0, "bytes": 10}  # fmt: skip
    lines = [line, line | {"blocked_seconds": 0.3}, line | {"durable": True, "heldout_seconds": 2.0}]
    found = checkpoint_costs(lines)
    assert found["local"]["count"] == 2 and found["local"]["blocked_seconds"] == pytest.approx(0.2)
    assert found["durable"] == {
        "count": 1, "bytes": 10, "blocked_seconds": 0.1, "waited_seconds": 0.0, "seconds": 4.0, "heldout_seconds": 2.0
    }  # fmt: skip
    assert checkpoint_costs([]) == {}
