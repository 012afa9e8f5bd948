"""A user relies on: a run goes on from the newest checkpoint that is whole, and says which ones it passed over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.pretrain.checkpoints.choose import always, choose
from tests.stages.pretrain.checkpoints.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as found:
        yield found


def test_a_run_goes_on_from_the_newest_checkpoint_in_the_order_of_numbers(world: World) -> None:
    for step in (9, 10, 100):
        world.save(step)
    assert choose(world.run, world.journal, wanted=always) == 100
    assert world.warnings() == []


def test_a_run_without_checkpoints_begins_anew(world: World) -> None:
    assert choose(world.run, world.journal, wanted=always) == 0


@pytest.mark.parametrize("part", ["dcp/.metadata", "dcp/__0_0.distcp", "state.json", "config.json", "checksums.json"])
@pytest.mark.parametrize("damage", ["absent", "truncated", "empty", "flipped"])
def test_a_damaged_checkpoint_is_passed_over_reported_and_kept_for_a_look(world: World, part: str, damage: str) -> None:
    world.save(10)
    path = world.save(20) / part
    content = path.read_bytes()
    damaged = {
        "truncated": content[: len(content) // 2],
        "empty": b"",
        "flipped": bytes([content[0] ^ 1]) + content[1:],
    }
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes(damaged[damage])
    assert choose(world.run, world.journal, wanted=always) == 10
    (warning,) = world.warnings()
    assert "step-00000020" in warning
    assert world.steps() == [10]
    assert (world.run.checkpoints / "step-00000020.damaged-1").is_dir()


def test_an_unfinished_checkpoint_is_deleted_and_reported(world: World) -> None:
    world.save(10)
    world.save(20).rename(world.run.checkpoints / "step-00000020.tmp")
    (world.run.checkpoints / "step-00000030.backup").mkdir()
    assert choose(world.run, world.journal, wanted=always) == 10
    assert "step-00000020.tmp was not finished" in world.warnings()[0]
    assert {path.name for path in world.run.checkpoints.iterdir()} == {"step-00000010", "step-00000030.backup"}


def test_a_rollback_sets_aside_what_is_not_healthy(world: World) -> None:
    for step in (10, 20, 30):
        world.save(step)
    assert choose(world.run, world.journal, wanted=lambda step: step + 10 <= 25) == 10
    assert {path.name for path in world.run.checkpoints.iterdir()} == {"step-00000010", "step-00000030.unhealthy-1"}
    assert len(world.warnings()) == 3, "two set aside, and the older of them deleted"


def test_of_what_was_set_aside_only_the_newest_of_each_reason_stays(world: World) -> None:
    for name in ("step-00000090.unhealthy-1", "step-00000100.unhealthy-1", "step-00000030.damaged-1", "step-9.backup"):
        (world.run.checkpoints / name).mkdir()
    for step in (10, 20, 30, 40):
        world.save(step)
    (world.run.checkpoints / "step-00000020" / "config.json").unlink()
    (world.run.checkpoints / "step-00000030" / "config.json").unlink()
    assert choose(world.run, world.journal, wanted=lambda step: step < 40) == 10
    assert {path.name for path in world.run.checkpoints.iterdir()} == {
        "step-00000010",
        "step-00000030.damaged-2",
        "step-00000100.unhealthy-1",
        "step-9.backup",
    }
