"""A user relies on: healthy checkpoints get to the durable store by themselves, a store that is down stops no training,
and a run whose machine is lost goes on on another one. The store is a folder; it is down while a file is in its place.
"""

import shutil
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stages.errors import TryAgain
from stages.pretrain import STAGE
from stages.pretrain.checkpoints.choose import always, choose
from stages.pretrain.checkpoints.health import is_proven
from stages.pretrain.checkpoints.index import Published
from stages.pretrain.checkpoints.keeper import Keeper
from stages.pretrain.config import PretrainConfig
from stages.pretrain.monitor.records import cut_back
from stages.store import Artifact
from tests.stages.pretrain import micro
from tests.stages.pretrain.checkpoints.world import World
from tests.stages.pretrain.runs import wait_for


@pytest.fixture
def far(tmp_path: Path) -> Path:
    return tmp_path / "far"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "here") as found:
        yield found


@pytest.fixture
def other(tmp_path: Path) -> Iterator[World]:
    """Another machine, with nothing of the run."""
    with World(tmp_path / "there") as found:
        yield found


def config(far: Path, **changes: Any) -> PretrainConfig:
    settings: dict[str, Any] = {"num_steps": 100, "checkpoint_every_steps": 50, "healthy_steps": 10, "keep_local": 2}
    return micro.config(**{**settings, "durable_url": f"file://{far}", "durable_wait_seconds": 60, **changes})


def keeper(world: World, far: Path, **changes: Any) -> Keeper:
    """Of a supervisor that has just begun, on a store whose calls are repeated soon."""
    found = world.keeper(config(far, **changes))
    assert found._tier is not None
    found._tier.files._first_delay_seconds = 0.01
    found.recover()
    return found


def trained(world: World, far: Path, **changes: Any) -> list[Artifact | Published]:
    """A run from its begin to its end, with durable checkpoints of all multiples of 50."""
    each = keeper(world, far, **changes)
    losses: tuple[float, ...] = ()
    for step in each._config.durable_steps():
        losses = (*losses, 3.0 + abs(step - 150) / 1000)
        world.save(step, heldout=losses)
        world.settle(each, step)
        world.settle(each, min(step + 10, each._config.num_steps))
    found = each.require_all()
    each.close()
    return found


def there(far: Path) -> list[int]:
    return sorted(int(path.parent.name[-8:]) for path in far.glob("*/step-*/index.json"))


def took_down(far: Path) -> bool:
    shutil.rmtree(far, ignore_errors=True)
    try:
        far.write_text("in the way")
    except IsADirectoryError:
        return False
    return True


def events(world: World, *kinds: str) -> list[str]:
    return [event["kind"] for event in world.events if event["kind"].startswith(kinds)]


def test_healthy_checkpoints_are_sent_and_those_that_retention_does_not_keep_are_deleted(
    world: World, far: Path
) -> None:
    trained(world, far, num_steps=400, keep_local=1, keep_every=2)
    assert there(far) == [100, 150, 200, 300, 400], "150 is the best"
    sent, removed = set(world.told("checkpoint.uploaded")), set(world.told("checkpoint.removed"))
    assert sent - removed == {100, 150, 200, 300, 400} and removed <= {50, 250, 350}
    for event in (event for event in world.events if event["kind"] == "checkpoint.storage"):
        assert event["store_bytes_at_end"] < event["bytes_at_end"] and event["bytes"] > 0
    recorded = [int(path.stem[-8:]) for path in sorted(far.glob("*/published/*"))]
    assert recorded == [*range(50, 401, 50)], "of all, whether or not there was time to send them"


def test_a_run_whose_machine_is_lost_goes_on_on_another(world: World, other: World, far: Path) -> None:
    artifacts = trained(world, far, num_steps=200)
    shutil.rmtree(next(far.glob("*/step-00000200")))
    next(far.glob("*/published/step-00000200.json")).unlink()
    again = keeper(other, far, num_steps=200)
    step = choose(other.run, other.journal, wanted=always, fetch=again.fetch)
    assert step == 150 and other.told("checkpoint.restored") == [150] and not other.warnings()
    cut_back(other.run, step)
    again.poll(step)
    other.save(200, heldout=(3.1, 3.05, 3.0, 3.05))
    other.settle(again, 200)
    found = again.require_all()
    assert [made.key for made in found] == [made.key for made in artifacts]
    assert [made.digest for made in found] == [made.digest for made in artifacts]
    assert isinstance(found[0], Published), "the store does not have it any more, and knows what it was"
    assert isinstance(found[2], Artifact), "what was restored is an artifact here too"
    assert there(far) == [150, 200]


def test_what_a_kill_left_of_an_upload_that_was_done_is_deleted(world: World, far: Path) -> None:
    trained(world, far)
    left = world.run.path / "uploads" / "step-00000050" / "records.tmp"
    left.mkdir(parents=True)
    again = keeper(world, far)
    again.require_all()
    assert not left.parent.exists()


def test_a_rebuild_begins_from_nothing_whatever_the_store_has(world: World, far: Path) -> None:
    trained(world, far)
    STAGE.forget(world.store, "0123456789ab")
    for _ in range(2):
        again = keeper(world, far)
        assert choose(world.run, world.journal, wanted=always, fetch=again.fetch) == 0
        again.close()


def test_a_machine_that_was_left_behind_catches_up(world: World, other: World, far: Path) -> None:
    trained(world, far, num_steps=100)
    other.save(10)
    again = keeper(other, far, num_steps=100)
    assert choose(other.run, other.journal, wanted=always, fetch=again.fetch) == 100
    cut_back(other.run, 100)


def test_a_checkpoint_here_that_is_newer_stays_the_one_to_go_on_from(world: World, far: Path) -> None:
    trained(world, far, num_steps=100)
    world.save(120)
    again = keeper(world, far, num_steps=150)
    assert choose(world.run, world.journal, wanted=always, fetch=again.fetch) == 120
    assert not world.told("checkpoint.restored")


def test_where_all_is_damaged_here_the_store_has_one(world: World, far: Path) -> None:
    trained(world, far, num_steps=100)
    again = keeper(world, far, num_steps=100)
    for folder in world.run.checkpoints.iterdir():
        (folder / "config.json").write_text("[]")
    assert choose(world.run, world.journal, wanted=always, fetch=again.fetch) == 100
    assert len(world.warnings()) >= 2


def test_a_rollback_finds_a_healthy_one_on_the_store(world: World, far: Path) -> None:
    trained(world, far, num_steps=100)
    again = keeper(world, far, num_steps=150)
    for folder in world.run.checkpoints.iterdir():
        shutil.rmtree(folder)
    world.save(105)
    wanted = partial(is_proven, reached=110, config=again._config)
    assert choose(world.run, world.journal, wanted=wanted, fetch=again.fetch) == 100


def test_a_damaged_checkpoint_on_the_store_is_passed_over(world: World, other: World, far: Path) -> None:
    trained(world, far, num_steps=100)
    part = next(far.glob("*/step-00000100/checkpoint/dcp/__0_0*"))
    part.write_bytes(part.read_bytes().replace(b"tensors", b"tensorz"))
    again = keeper(other, far, num_steps=100)
    assert choose(other.run, other.journal, wanted=always, fetch=again.fetch) == 50
    assert "checkpoint 100 in" in other.warnings()[0] and "is damaged" in other.warnings()[0]
    assert [path.name for path in other.run.checkpoints.iterdir()] == ["step-00000050"]
    cut_back(other.run, 50)
    other.save(100, heldout=(3.1, 3.05))
    other.settle(again, 100)
    again.require_all()
    again.close()
    assert b"tensors" in part.read_bytes(), "it has been sent again"


def test_what_a_kill_left_is_in_nobodys_way(world: World, other: World, far: Path) -> None:
    trained(world, far, num_steps=100)
    (other.run.checkpoints / "step-00000040.tmp-fetched" / "checkpoint").mkdir(parents=True)
    (other.run.checkpoints / "step-00000100" / "dcp").mkdir(parents=True)
    again = keeper(other, far, num_steps=100)
    assert choose(other.run, other.journal, wanted=always, fetch=again.fetch) == 100
    names = sorted(path.name for path in other.run.checkpoints.iterdir())
    assert names == ["step-00000100", "step-00000100.damaged-1"]


def test_what_is_left_of_a_checkpoint_that_was_being_deleted_is_deleted(world: World, far: Path) -> None:
    trained(world, far, num_steps=200, keep_local=1)
    left = next(far.glob("*/run.json")).parent / "step-00000100" / "checkpoint" / "config.json.0"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("{}")
    keeper(world, far, num_steps=200, keep_local=1).require_all()
    assert not left.exists() and there(far) == [150, 200]


def test_the_thread_that_sends_does_not_miss_the_end(world: World, far: Path) -> None:
    """However late it comes before the thread waits."""
    each = world.keeper(config(far))
    tier = each._tier
    assert tier is not None

    class Late(threading.Event):
        def clear(self) -> None:
            tier.files.stop.set()
            self.set()
            super().clear()

    tier._uploader._changed = Late()
    each.recover()
    wait_for(lambda: not tier._uploader._thread.is_alive(), "the end of the thread", 30)


def test_a_store_that_is_down_stops_nothing_before_the_end(world: World, far: Path) -> None:
    """And the same command sends what is missing when it is well again."""
    each = keeper(world, far, durable_wait_seconds=0.5)
    wait_for(lambda: took_down(far), "an instant in which nothing is written", 30)
    for step, losses in ((50, (3.0,)), (100, (3.0, 2.9))):
        world.save(step, heldout=losses)
        began = time.monotonic()
        each.poll(step)
        assert time.monotonic() - began < 10, "a hang, not a slow machine"
        world.settle(each, min(step + 10, 100))
    wait_for(lambda: each.poll(100) or bool(events(world, "store.failing")), "word of the store", 30)
    with pytest.raises(TryAgain, match=r"checkpoints of steps \[50, 100\] have not got to file://.*what was sent"):
        each.require_all()
    each.close()
    far.unlink()
    again = keeper(world, far)
    world.settle(again, 100)
    assert len(again.require_all()) == 2 and there(far) == [50, 100]
    assert events(world, "store", "checkpoint.up")[0] == "store.failing"


def test_nobody_begins_anew_because_the_store_does_not_answer(world: World, far: Path) -> None:
    far.write_text("in the way")
    with pytest.raises(TryAgain, match=r"no checkpoint on this machine.*leave out pretrain.durable_url to begin anew"):
        keeper(world, far, durable_wait_seconds=0.5)
    world.save(10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.pretrain.checkpoints.tier.SHORT_PATIENCE_SECONDS", 0.2)
        again = keeper(world, far)
    assert "The run goes on from step 10" in world.warnings()[0]
    assert choose(world.run, world.journal, wanted=always, fetch=again.fetch) == 10
    far.unlink()
    world.save(50, heldout=(3.0,))
    world.settle(again, 60)
    wait_for(lambda: again.poll(60) or bool(world.told("checkpoint.uploaded")), "the upload", 60)
    assert there(far) == [50]


def test_a_run_that_is_asked_to_stop_waits_for_no_store(world: World, far: Path) -> None:
    """At its begin and at its end, and what the store does is told meanwhile."""
    far.write_text("in the way")
    asked: list[bool] = []

    def interrupt() -> None:
        if asked:
            raise TryAgain("stopped on request")

    def told(event: dict[str, Any]) -> None:
        if event["kind"] == "store.failing":
            asked.append(True)

    world.listeners.append(told)
    each = world.keeper(config(far, durable_wait_seconds=600), interrupt=interrupt)
    with pytest.raises(TryAgain, match="stopped on request"):
        each.recover()
    far.unlink()
    asked.clear()
    again = world.keeper(config(far, durable_wait_seconds=600), interrupt=interrupt)
    again.recover()
    wait_for(lambda: took_down(far), "an instant in which nothing is written", 30)
    world.save(50, heldout=(3.0,))
    world.save(100, heldout=(3.0, 2.9))
    world.settle(again, 100)
    with pytest.raises(TryAgain, match="stopped on request"):
        again.require_all()


def test_a_supervisor_that_is_killed_while_it_sends_leaves_nothing_half(world: World, far: Path) -> None:
    each = keeper(world, far)
    assert each._tier is not None
    world.save(50, heldout=(3.0,))
    tell = each._tier.files.write

    def stops(path: str, content: bytes, **more: Any) -> None:
        if path.endswith("index.json"):
            each._tier.files.stop.set()
        tell(path, content, **more)

    each._tier.files.write = stops  # type: ignore[method-assign]
    world.settle(each, 60)
    wait_for(lambda: each._tier.files.stop.is_set(), "the stop", 30)
    each.close()
    assert there(far) == [] and list(far.glob("*/step-00000050/checkpoint/*"))
    again = keeper(world, far)
    wait_for(lambda: again.poll(60) or bool(world.told("checkpoint.uploaded")), "the upload", 60)
    (event,) = [event for event in world.events if event["kind"] == "checkpoint.uploaded"]
    assert event["sent_bytes"] == 0 < event["bytes"], "nothing was sent twice"
