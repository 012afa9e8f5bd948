"""What becomes of checkpoints, on folders that only look like them: nothing here needs torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from stages.base import Inputs
from stages.journal import Journal
from stages.pretrain import STAGE
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.checkpoints.keeper import Keeper, always, choose, prune
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory
from stages.store import Store
from tests.stages.pretrain import micro

CONFIG = micro.config(num_steps=100, checkpoint_every_steps=50, healthy_steps=10, keep_local=2)


class World:
    """A store, a run directory and a journal whose events are in `events`."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.run = RunDirectory(self.store.runs_path("0123456789ab"))
        self.run.checkpoints.mkdir(parents=True)
        self.events: list[dict[str, Any]] = []
        self.journal = Journal(root / "events.jsonl", stage="pretrain", listeners=(self.events.append,))

    def save(self, step: int, *, heldout: tuple[float, ...] = (), digest: str = "") -> Path:
        """A checkpoint whose tensors are one file of bytes."""
        folder = self.run.checkpoints / checkpoint.step_name(step)
        (folder / "dcp").mkdir(parents=True)
        (folder / "dcp" / ".metadata").write_text("index")
        (folder / "dcp" / "__0_0.distcp").write_text(f"tensors of step {step}")
        (folder / "config.json").write_text("{}")
        losses = tuple((50 * (number + 1), loss) for number, loss in enumerate(heldout))
        state = StepState(
            step=step,
            tokens_seen=step * 96,
            vocabulary_size=micro.VOCABULARY,
            config_fingerprint="c",
            data_fingerprint="d",
            heldout=losses,
            state_digest=digest or f"digest of step {step}",
        )
        (folder / "state.json").write_text(state.model_dump_json())
        checkpoint.seal(folder)
        return folder

    def steps(self) -> list[int]:
        return list(checkpoint.scan(self.run.checkpoints).complete)

    def keeper(self, config: PretrainConfig = CONFIG) -> Keeper:
        inputs = Inputs(
            artifacts={},
            entries={},
            externals={},
            rounding={},
            store=self.store,
            key="0123456789ab",
            label="micro",
        )
        return Keeper(config, inputs, self.run, 67, self.journal)

    def told(self, kind: str) -> list[int]:
        return [event["step"] for event in self.events if event["kind"] == kind]

    def warnings(self) -> list[str]:
        return [event["text"] for event in self.events if event["kind"] == "warning"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.journal.close()


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


def test_a_rebuild_forgets_the_run_and_nothing_else(world: World) -> None:
    other = world.store.runs_path("ba9876543210")
    other.mkdir()
    world.save(10)
    STAGE.forget(world.store, "0123456789ab")
    assert list((world.store.root / "runs").iterdir()) == [other]
    STAGE.forget(world.store, "0123456789ab")


def test_pruning_keeps_the_newest_the_one_to_roll_back_to_and_what_is_to_be_published(world: World) -> None:
    for step in (10, 20, 50, 60, 81, 85, 88):
        world.save(step)
    prune(world.run, CONFIG, reached=90, unpublished={50, 100})
    assert world.steps() == [50, 60, 85, 88]


def test_a_durable_checkpoint_is_published_once_enough_clean_steps_follow(world: World) -> None:
    keeper = world.keeper()
    world.save(50, heldout=(3.0,))
    keeper.poll(59)
    assert not keeper.published
    keeper.poll(60)
    keeper.poll(61)
    artifact = keeper.published[50]
    assert world.told("checkpoint.saved") == world.told("checkpoint.healthy") == [50]
    assert artifact.manifest.config == {"parent": "0123456789ab", "step": 50}
    assert artifact.facts == {
        "step": 50,
        "tokens_seen": 4800,
        "state_digest": "digest of step 50",
        "heldout_loss": 3.0,
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
        keeper.poll(60)
        digests.append(keeper.published[50].digest)
    assert digests[0] == digests[1]
    other.journal.close()


def test_the_last_checkpoint_needs_a_sound_held_out_loss(world: World) -> None:
    keeper = world.keeper()
    world.save(50, heldout=(3.0,))
    world.save(100, heldout=(3.0, 3.7))
    keeper.poll(99)
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
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "publish", killed)
    with pytest.raises(KeyboardInterrupt):
        world.keeper().poll(100)
    monkeypatch.setattr(Store, "publish", publish)
    world.keeper().poll(100)
    keeper = world.keeper()
    keeper.poll(100)
    assert [artifact.facts["step"] for artifact in keeper.require_all()] == [50, 100]
    assert len(list(world.store.all("checkpoint"))) == 2
    assert not [path for path in world.run.path.iterdir() if path.name.startswith("publish")]


def test_the_artifact_stays_when_its_step_is_made_again_otherwise(world: World) -> None:
    world.save(50, heldout=(3.0,))
    keeper = world.keeper()
    keeper.poll(60)
    checkpoint.remove(world.run.checkpoints / "step-00000050")
    keeper.forget(0)
    world.save(50, heldout=(3.0,))
    keeper.poll(55)
    assert world.warnings() == []
    checkpoint.remove(world.run.checkpoints / "step-00000050")
    keeper.forget(0)
    world.save(50, heldout=(3.0,), digest="another")
    keeper.poll(55)
    assert "differs" in world.warnings()[0]
    assert keeper.published[50].facts["state_digest"] == "digest of step 50"


def test_a_damaged_checkpoint_is_never_published(world: World) -> None:
    folder = world.save(50, heldout=(3.0,))
    (folder / "dcp" / "__0_0.distcp").write_text("tensors of step 51")
    with pytest.raises(RuntimeError, match="damaged"):
        world.keeper().poll(60)
    assert not list(world.store.all("checkpoint"))
