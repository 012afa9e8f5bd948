"""A user relies on: a checkpoint on the durable store is whole or not there, whatever the store and the way to it do,
and a run that has lost its machine goes on from it. On an S3 server of this machine behind a proxy that does harm.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from data.errors import InputError
from stages.pretrain.checkpoints import checkpoint, durable
from stages.pretrain.checkpoints.durable import DurableStore, NotYet
from stages.pretrain.checkpoints.index import Published
from stages.pretrain.checkpoints.remote_files import LEAST_BYTES, Pace, RemoteFiles, Stopped, Unreachable
from stages.pretrain.job import read_lines
from stages.pretrain.monitor.records import cut_back
from tests.services.proxy import FaultProxy, Faults
from tests.services.s3 import options, s3_server
from tests.stages.pretrain.checkpoints.world import World

MADE = Published(step=50, key="k", digest="d", facts={"heldout_loss": 3.0})
TENSORS = bytes(range(256)) * 1800 + b"odd"  # 0.44 MiB: three parts, as they double


@pytest.fixture(scope="module")
def server() -> Iterator[FaultProxy]:
    with s3_server() as port, FaultProxy(port) as made:
        fsspec.filesystem("s3", **options(port)).mkdir("bucket")
        made.writes = True
        yield made


@pytest.fixture
def proxy(server: FaultProxy) -> FaultProxy:
    server.faults, server.script = Faults(), []
    return server


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "here") as found:
        yield found


class Remote:
    """The durable store of a world's run, and the events that it told. Its parts begin with 64 KiB."""

    def __init__(self, world: World, url: str, proxy: FaultProxy | None = None, **timing: Any) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.files = RemoteFiles(
            url,
            tell=lambda kind, **fields: self.told.append((kind, fields)),
            options=options(proxy.port) if proxy else None,
            **{"first_delay_seconds": 0.01, **timing},
        )
        self.files.writing.bytes = self.files.reading.bytes = LEAST_BYTES
        self.store = DurableStore(self.files, world.run)
        self.sent: list[int] = []

    def upload(self, folder: Path) -> None:
        self.store.record(MADE)
        self.store.upload(folder, self.sent.append)

    def restore(self, step: int = 50) -> Path | None:
        index = self.store.index(step, self.store.complete()[step])
        return self.store.restore(index, patience_seconds=20) if index else None

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.told]


def test_parts_grow_with_the_speed_and_shrink_where_it_stalls() -> None:
    pace = Pace(64 << 20)
    pace.bytes = 1 << 20
    pace.took(1000, 0.1)
    assert pace.bytes == 1 << 20, "a small file says nothing"
    pace.took(1 << 20, 3.0)
    assert pace.bytes == 1 << 20, "fast enough, and no faster"
    pace.took(1 << 20, 0.01)
    assert pace.bytes == 2 << 20
    for _ in range(20):
        pace.took(pace.bytes, 0.01)
    assert pace.bytes == 64 << 20
    pace.took(64 << 20, 16.0)
    assert pace.bytes == 16 << 20
    pace.stalled()
    assert pace.bytes == 4 << 20
    for _ in range(20):
        pace.stalled()
    assert pace.bytes == LEAST_BYTES


@pytest.mark.parametrize("place", ["s3://bucket/plain/", "file", "memory://plain"])
def test_what_was_sent_comes_back_bitwise_on_any_store(
    world: World, proxy: FaultProxy, tmp_path: Path, place: str
) -> None:
    url = f"file://{tmp_path}/far/away" if place == "file" else place
    remote = Remote(world, url, proxy if place.startswith("s3") else None)
    folder = world.save(50, heldout=(3.0,), tensors=TENSORS)
    world.run.incidents.write_text("an incident")
    with open(world.run.metrics, "a") as file:
        file.write("step 51\nstep 5")
    remote.upload(folder)
    assert len(remote.sent) > 7 and sum(remote.sent) > len(TENSORS)
    with World(tmp_path / "another machine") as other:
        found = Remote(other, url, proxy if place.startswith("s3") else None).restore()
        assert found == other.run.checkpoints / "step-00000050.tmp"
        assert checkpoint.problems(found) == [] and checkpoint.read_state(found).step == 50
        assert (found / "dcp" / "__0_0.distcp").read_bytes() == TENSORS
        assert other.run.incidents.read_text() == "an incident"
        assert len(read_lines(other.run.metrics)) == len(read_lines(other.run.timing)) == 50
        assert [path.name for path in other.run.checkpoints.iterdir()] == [found.name]
    remote.upload(folder)
    assert remote.store.published() == {50: MADE}
    remote.store.remove(50)
    assert remote.store.complete() == {} and remote.store.published() == {50: MADE}


@pytest.mark.parametrize("fault", ["503", "reset", "cut", "short"])
def test_a_fault_of_every_request_in_turn_is_got_over(world: World, proxy: FaultProxy, fault: str) -> None:
    """A store that says it has taken what it has cut short is found out by reading back."""
    remote = Remote(world, f"s3://bucket/{fault}", proxy)
    folder = world.save(50, heldout=(3.0,), tensors=TENSORS)
    proxy.script = [fault, "", "", fault, fault, "", ""] * 2
    remote.upload(folder)
    assert not proxy.script and {"store.failing", "store.recovered"} <= {*remote.kinds()}
    proxy.script = [fault if fault != "short" else "cut", ""] * 4
    found = remote.restore()
    assert found and (found / "dcp" / "__0_0.distcp").read_bytes() == TENSORS


def test_a_store_that_falls_silent_is_told_of_and_asked_again(world: World, proxy: FaultProxy) -> None:
    remote = Remote(world, "s3://bucket/silent", proxy, stall_seconds=0.7)
    folder = world.save(50, heldout=(3.0,), tensors=TENSORS)
    proxy.script = ["", "", "", "stall"]
    remote.upload(folder)
    assert remote.kinds()[0] == "store.stalled" and remote.kinds()[-1] == "store.recovered"
    assert remote.told[0][1]["operation"].startswith(("write s", "write 0"))
    assert remote.restore()


def test_an_outage_is_told_of_once(world: World, proxy: FaultProxy) -> None:
    remote = Remote(world, "s3://bucket/outage", proxy)
    proxy.script = ["503"] * 6
    remote.files.write("file", b"content")
    assert remote.kinds() == ["store.failing", "store.recovered"]


def test_an_upload_goes_on_where_it_was(world: World, proxy: FaultProxy) -> None:
    """Over restarts, behind a torn line, and with parts that have got lost or were cut meanwhile."""
    first = Remote(world, "s3://bucket/resumed", proxy)
    folder = world.save(50, heldout=(3.0,), tensors=TENSORS)

    def stops(num_bytes: int) -> None:
        first.sent.append(num_bytes)
        if sum(first.sent) > len(TENSORS) // 4:
            first.files.stop.set()

    with pytest.raises(Stopped):
        first.store.upload(folder, stops)
    with pytest.raises(Stopped):
        first.store.complete()
    again = Remote(world, "s3://bucket/resumed", proxy)
    assert again.store.complete() == {}, "an upload that has not come to its end is not there"
    record = world.run.path / "uploads" / "step-00000050" / "parts.jsonl"
    recorded = [json.loads(line) for line in record.read_text().splitlines()]
    with open(record, "a") as file:
        file.write('{"file": "checkp')
    sizes = again.files.sizes(f"{world.run.path.name}/step-00000050")
    lost = f"{world.run.path.name}/step-00000050/{recorded[0]['file']}"
    again.files.remove([name for name in sizes if name.startswith(lost)])
    again.upload(folder)
    assert sum(first.sent) + sum(again.sent) < 1.2 * len(TENSORS), "hardly anything was sent twice"
    assert not record.exists() and again.restore()
    again.upload(folder)
    assert again.restore()


@pytest.mark.parametrize("damage", ["flipped", "short", "missing", "index"])
def test_damage_on_the_store_is_found_out(world: World, tmp_path: Path, damage: str) -> None:
    remote = Remote(world, f"file://{tmp_path}/far")
    remote.upload(world.save(50, heldout=(3.0,), tensors=TENSORS))
    files = sorted((tmp_path / "far").rglob("*"))
    (victim,) = [path for path in files if path.name.startswith("__0_0.distcp.000000000000")]
    if damage == "index":
        (victim,) = [path for path in files if path.name == "index.json"]
    content = victim.read_bytes()
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(content[:-9] if damage == "short" else content.replace(b"1", b"2", 1))
    assert remote.restore() is None
    assert not (world.run.checkpoints / "step-00000050.tmp" / "checksums.json").exists() or damage == "index"


def test_an_object_that_was_cut_short_is_damage_and_no_outage(world: World, proxy: FaultProxy) -> None:
    """S3 has no empty answer for what is behind the end of an object."""
    remote = Remote(world, "s3://bucket/truncated", proxy)
    remote.upload(world.save(50, heldout=(3.0,), tensors=TENSORS))
    files = fsspec.filesystem("s3", **options(proxy.port))
    (victim,) = [path for path in files.find("bucket/truncated") if "__0_0.distcp.000000000000" in path]
    files.pipe_file(victim, files.cat_file(victim)[:-9])
    assert remote.restore() is None and remote.kinds() == []


def test_a_part_that_has_come_damaged_once_is_read_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, harm = Remote(world, f"file://{tmp_path}/far"), [b"!"]
    remote.upload(world.save(50, heldout=(3.0,), tensors=TENSORS))
    read = remote.files.read

    def once(path: str, num_bytes: int, **more: Any) -> bytearray:
        found = read(path, num_bytes, **more)
        if "__0_0" in path and harm:
            found[-1:] = harm.pop()
        return found

    monkeypatch.setattr(remote.files, "read", once)
    found = remote.restore()
    assert found and not harm and (found / "dcp" / "__0_0.distcp").read_bytes() == TENSORS


def test_what_comes_back_otherwise_is_no_progress(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes everything and keeps half of it is not waited for as long as it answers."""
    remote = Remote(world, f"file://{tmp_path}/far")
    remote.files.write("file", b"content")
    whole, before = type(remote.files._files).pipe_file, remote.files.progress_at
    monkeypatch.setattr(
        type(remote.files._files), "pipe_file", lambda files, path, content: whole(files, path, content[:-1])
    )
    with pytest.raises(Unreachable, match="came back otherwise"):
        remote.files.write("file", b"another", patience_seconds=0.1)
    assert remote.files.progress_at == before


def test_a_checkpoint_that_has_changed_on_this_machine_is_not_vouched_for(world: World, tmp_path: Path) -> None:
    folder = world.save(50, heldout=(3.0,), tensors=TENSORS)
    (folder / "dcp" / "__0_0.distcp").write_bytes(TENSORS[:-1] + b"!")
    remote = Remote(world, f"file://{tmp_path}/far")
    with pytest.raises(RuntimeError, match="has changed since it was written"):
        remote.upload(folder)
    assert remote.store.complete() == {}


def test_records_that_a_kill_cut_off_are_taken_over_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it came: a run without the lines of its steps could not go on."""
    url = f"file://{tmp_path}/far"
    world.run.excluded.write_text("[]")
    Remote(world, url).upload(world.save(50, heldout=(3.0,), tensors=TENSORS))
    write = durable.write_atomic
    for writes in range(3):
        with World(tmp_path / f"machine {writes}") as other, monkeypatch.context() as patch:
            left = [True] * writes

            def killed(path: Path, content: bytes, left: list[bool] = left) -> None:
                if not left:
                    raise KeyboardInterrupt
                left.pop()
                write(path, content)

            patch.setattr(durable, "write_atomic", killed)
            with pytest.raises(KeyboardInterrupt):
                Remote(other, url).restore()
            patch.undo()
            assert Remote(other, url).restore()
            assert other.run.excluded.exists() and len(read_lines(other.run.timing)) == 50


def test_an_upload_ends_soon_although_all_is_there(world: World, tmp_path: Path) -> None:
    """To read through what an earlier attempt has sent takes minutes for a large checkpoint."""
    remote, folder = Remote(world, f"file://{tmp_path}/far"), world.save(50, heldout=(3.0,), tensors=TENSORS)
    write, verified, slices = remote.files.write, remote.store._verified_parts, remote.store._slices

    def no_index(path: str, content: bytes, **more: Any) -> None:
        if path.endswith("index.json"):
            raise Stopped
        write(path, content, **more)

    remote.files.write = no_index  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        remote.store.upload(folder, remote.sent.append)
    opened: list[str] = []

    def then_stopped(step: int) -> Any:
        found = verified(step)
        remote.files.stop.set()
        return found

    def counted(file: Any, sizes: Any) -> Any:
        opened.append(file.name)
        return slices(file, sizes)

    remote.store._verified_parts, remote.store._slices = then_stopped, counted  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        remote.store.upload(folder, remote.sent.append)
    assert len(opened) == 1


def test_a_store_that_cannot_be_used_is_an_error_that_says_so(world: World, proxy: FaultProxy) -> None:
    with pytest.raises(InputError, match="no file system for nothing://at/all"):
        Remote(world, "nothing://at/all")
    with pytest.raises(InputError, match=r"pretrain.durable_url: cannot write .* in s3://no-bucket: there is no such"):
        Remote(world, "s3://no-bucket", proxy).store.begin(patience_seconds=5)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_S3_"))]:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(InputError, match="AWS_ACCESS_KEY_ID"):
            Remote(world, "s3://bucket/mine").store.begin(patience_seconds=60)
    proxy.faults = Faults(reset=1.0)
    remote = Remote(world, "s3://bucket/down", proxy)
    with pytest.raises(Unreachable, match="s3://bucket/down does not answer"):
        remote.store.begin(patience_seconds=0.3)
    assert remote.kinds() == ["store.failing"]


def test_a_full_store_is_waited_for(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, full = Remote(world, f"file://{tmp_path}/far"), [True] * 3
    opened = type(remote.files._files).pipe_file

    def pipe_file(self: Any, path: str, content: bytes, **more: Any) -> None:
        if full:
            full.pop()
            raise OSError(28, os.strerror(28))
        opened(self, path, content, **more)

    monkeypatch.setattr(type(remote.files._files), "pipe_file", pipe_file)
    remote.upload(world.save(50, heldout=(3.0,), tensors=TENSORS))
    assert remote.kinds() == ["store.failing", "store.recovered"] and remote.restore()


def test_records_that_a_rollback_has_cut_are_waited_for(world: World, tmp_path: Path) -> None:
    """A checkpoint without the lines of its steps could not be gone on from elsewhere."""
    remote = Remote(world, f"file://{tmp_path}/far")
    folder = world.save(50, heldout=(3.0,), tensors=TENSORS)
    cut_back(world.run, 40)
    with pytest.raises(NotYet):
        remote.upload(folder)
    world.save(60)
    remote.upload(folder)
    cut_back(world.run, 40)
    assert remote.restore() and len(read_lines(world.run.timing)) == 50
