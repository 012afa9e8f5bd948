"""What becomes of checkpoints, on folders that only look like them: nothing here needs torch."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from stages.pretrain import STAGE
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.keeper import TRASH
from stages.pretrain.checkpoints.publish import publish
from stages.store import Store
from tests.stages.pretrain import micro
from tests.stages.pretrain.checkpoints.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as found:
        yield found


def test_a_rebuild_forgets_the_run_and_nothing_else(world: World) -> None:
    other = world.store.runs_path("ba9876543210")
    other.mkdir()
    world.save(10)
    STAGE.forget(world.store, "0123456789ab")
    assert {*(world.store.root / "runs").iterdir()} == {other, world.run.path}
    assert not world.run.checkpoints.exists()
    STAGE.forget(world.store, "0123456789ab")


def test_pruning_keeps_the_newest_the_one_to_roll_back_to_and_what_is_to_be_published(world: World) -> None:
    for step in (10, 20, 50, 60, 81, 85, 88):
        world.save(step)
    world.settle(world.keeper(), 59)
    assert world.steps() == [20, 50, 85, 88], "50 is durable and not proven yet"
    world.save(89)
    world.settle(world.keeper(), 96)
    assert world.steps() == [85, 88, 89], "50 has been published"
    assert [path.name for path in world.run.checkpoints.iterdir() if path.name.startswith(".")] == []


def test_the_best_checkpoint_and_every_nth_stay(world: World) -> None:
    config = micro.config(num_steps=400, checkpoint_every_steps=50, keep_local=1, healthy_steps=3, keep_every=3)
    keeper = world.keeper(config)
    losses: tuple[float, ...] = ()
    for step, loss in ((50, 4.0), (100, 2.0), (150, 3.0), (200, 2.5), (250, 2.4)):
        losses = (*losses, loss)
        world.save(step, heldout=losses)
        world.settle(keeper, step + 3)
    assert world.steps() == [100, 150, 250]
    assert sorted(keeper.published) == [50, 100, 150, 200, 250]


def test_what_a_kill_left_of_a_deletion_is_deleted(world: World) -> None:
    world.save(10).rename(world.run.checkpoints / f"{TRASH}step-00000010-1")
    world.save(20)
    world.settle(world.keeper(), 25)
    assert [path.name for path in world.run.checkpoints.iterdir()] == ["step-00000020"]


def test_a_poll_does_not_wait_for_what_takes_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    verified, going_on = checkpoint.require_intact, threading.Event()

    def slowly(path: Path) -> None:
        assert going_on.wait(60)
        verified(path)

    monkeypatch.setattr(checkpoint, "require_intact", slowly)
    keeper = world.keeper()
    world.save(50, heldout=(3.0,))
    for _ in range(3):
        keeper.poll(60)
    assert not keeper.published and keeper.is_busy and world.steps() == [50]
    going_on.set()
    world.settle(keeper, 60)
    assert list(keeper.published) == [50]


def test_a_run_that_ends_with_an_error_publishes_what_is_healthy_first(world: World) -> None:
    with pytest.raises(RuntimeError, match="training stopped"), world.keeper() as keeper:
        world.save(50, heldout=(3.0,))
        keeper.poll(60)
        raise RuntimeError("training stopped")
    assert world.told("checkpoint.healthy") == [50]


def test_a_checkpoint_that_is_set_aside_while_it_is_to_be_published_is_no_error(world: World) -> None:
    keeper = world.keeper()
    path = world.save(50, heldout=(3.0,))
    checkpoint.set_aside(path, checkpoint.DAMAGED)
    assert publish(path, keeper._inputs, world.run, num_steps=100) is None
    assert not [path for path in world.run.path.iterdir() if path.name.startswith("publish")]


def test_a_saved_checkpoint_is_told_with_its_cost(world: World) -> None:
    keeper = world.keeper()
    line = {"step": 10, "durable": False, "blocked_seconds": 0.5, "heldout_seconds": 0.0, "seconds": 2.0, "bytes": 7}
    stale = {**line, "blocked_seconds": 9.0}
    world.run.saves.write_text("".join(json.dumps(each) + "\n" for each in (stale, line)) + '{"step": 1')
    world.save(10)
    keeper.poll(11)
    (event,) = [event for event in world.events if event["kind"] == "checkpoint.saved"]
    assert {name: event[name] for name in line} == line


def test_the_interval_of_local_checkpoints_follows_what_they_cost(world: World) -> None:
    keeper = world.keeper()
    assert keeper.checkpoint_seconds() is None, "nothing has been measured"
    line = {"step": 10, "durable": False, "blocked_seconds": 0.01, "heldout_seconds": 0.0, "seconds": 2.0}
    world.run.saves.write_text(json.dumps(line) + "\n")
    assert keeper.checkpoint_seconds() == pytest.approx((2 * 0.01 * 86400) ** 0.5, rel=0.01)
    assert world.keeper(micro.config(checkpoint_seconds=7)).checkpoint_seconds() == 7


def test_durable_checkpoints_that_come_too_often_are_told_of_once(world: World) -> None:
    world.run.timing.write_text("".join(json.dumps({"step": step, "seconds": 60.0}) + "\n" for step in range(1, 12)))
    keeper = world.keeper()
    for reached in (9, 11, 12):
        keeper.poll(reached)
    (warning,) = world.warnings()
    assert "pretrain.checkpoint_every_steps = 50 makes a durable checkpoint every 50 min" in warning
    assert "60 to 100 steps" in warning


def test_a_durable_checkpoint_is_published_once_enough_clean_steps_follow(world: World) -> None:
    keeper = world.keeper()
    world.save(50, heldout=(3.0,))
    world.settle(keeper, 59)
    assert not keeper.published
    world.settle(keeper, 60)
    world.settle(keeper, 61)
    artifact = keeper.published[50]
    assert world.told("checkpoint.saved") == world.told("checkpoint.healthy") == [50]
    assert artifact.manifest.config == {"parent": "0123456789ab", "step": 50}
    assert artifact.facts == {
        "step": 50,
        "tokens_seen": 4800,
        "state_digest": "digest of step 50",
        "heldout_loss": 3.0,
        "last": False,
    }
    assert checkpoint.problems(artifact.path) == []
    assert world.steps() == [50], "the local checkpoint is still there to go on from"


def test_the_digest_of_the_artifact_is_that_of_the_state_and_not_of_dcps_files(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    digests = []
    for each in (world, other):
        folder = each.save(50, heldout=(3.0,))
        if each is other:
            (folder / "dcp" / ".metadata").write_text("another fresh id")
            checkpoint.seal(folder)
        keeper = each.keeper()
        each.settle(keeper, 60)
        digests.append(keeper.published[50].digest)
    assert digests[0] == digests[1]
    other.journal.close()


def test_the_last_checkpoint_needs_a_sound_held_out_loss(world: World) -> None:
    keeper = world.keeper()
    world.save(50, heldout=(3.0,))
    world.save(100, heldout=(3.0, 3.7))
    world.settle(keeper, 99)
    assert list(keeper.published) == [50]
    with pytest.raises(InputError, match="held-out loss is 3.7000 at step 100"):
        keeper.poll(100)
    with pytest.raises(RuntimeError, match=r"steps \[100\] are neither"):
        keeper.require_all()


def test_a_kill_between_healthy_and_published_is_made_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save(50, heldout=(3.0,))
    world.save(100, heldout=(3.0, 2.5))
    publish = Store.publish

    def killed(*args: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr(Store, "publish", killed)
    first = world.keeper()
    with pytest.raises(ConnectionError):
        world.settle(first, 100)
    first.close()  # its thread ends with its process
    monkeypatch.setattr(Store, "publish", publish)
    world.settle(world.keeper(), 100)
    keeper = world.keeper()
    world.settle(keeper, 100)
    assert [artifact.facts["step"] for artifact in keeper.require_all()] == [50, 100]
    assert len(list(world.store.all("checkpoint"))) == 2
    assert not [path for path in world.run.path.iterdir() if path.name.startswith("publish")]


def test_the_artifact_stays_when_its_step_is_made_again_otherwise(world: World) -> None:
    world.save(50, heldout=(3.0,))
    keeper = world.keeper()
    world.settle(keeper, 60)
    shutil.rmtree(world.run.checkpoints / "step-00000050")
    keeper.forget(0)
    world.save(50, heldout=(3.0,))
    keeper.poll(55)
    assert world.warnings() == []
    shutil.rmtree(world.run.checkpoints / "step-00000050")
    keeper.forget(0)
    world.save(50, heldout=(3.0,), digest="another")
    keeper.poll(55)
    assert "differs" in world.warnings()[0]
    assert keeper.published[50].facts["state_digest"] == "digest of step 50"


def test_a_damaged_checkpoint_is_never_published(world: World) -> None:
    folder = world.save(50, heldout=(3.0,))
    (folder / "dcp" / "__0_0.distcp").write_text("tensors of step 51")
    with pytest.raises(RuntimeError, match="damaged"):
        world.settle(world.keeper(), 60)
    assert not list(world.store.all("checkpoint"))
