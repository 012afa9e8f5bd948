"""A curation that is killed at any moment goes on behind what it finished, and ends as an undisturbed one does."""

import itertools
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from stages import manifest
from stages.curate import CurateConfig
from stages.curate.read import ReadAndJudge
from stages.store import Store
from tests.stages.curate.curated import corpus, curate, small_batches, source, write_jsonl

DISK_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR
NUM_KILLS = 8


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small_batches(monkeypatch, 6000)
    records = corpus(60)
    records += [dict(record, id=f"{record['id']}x") for record in records[::7]]
    records += [{"text": f"{record['text']}\nOne more line.", "id": f"{record['id']}y"} for record in records[1::9]]
    for number in range(2):
        write_jsonl(f"a{number}.jsonl", records[number::2] + [{"text": "short"}])


def config() -> CurateConfig:
    return CurateConfig(sources=(source("a*.jsonl"),), repeated_line_documents=50)


def killed_at(root: str, operation: int) -> bool:
    """Curate in a child that is killed just before its disk operation of that number. False if it came to the end."""
    pid = os.fork()
    if pid == 0:
        try:
            _kill_self_at(operation)
            curate(config(), root)
        finally:
            os._exit(1 if sys.exc_info()[0] else 0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def _kill_self_at(operation: int) -> None:
    counter = itertools.count(1)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event != "open" or (isinstance(arguments[2], int) and arguments[2] & WRITE_FLAGS)
        if event in DISK_EVENTS and writes and "artifacts" in str(arguments[0]) and next(counter) == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def count_operations(root: str) -> int:
    """How many disk operations an undisturbed run has. It is made in a child, since an audit hook stays."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        counter = itertools.count(1)

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            writes = event != "open" or (isinstance(arguments[2], int) and arguments[2] & WRITE_FLAGS)
            if event in DISK_EVENTS and writes and "artifacts" in str(arguments[0]):
                next(counter)

        sys.addaudithook(audit)
        curate(config(), root)
        os.write(writing, str(next(counter) - 1).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return int(os.read(reading, 100))


def test_killed_at_moments_from_beginning_to_end():
    undisturbed = curate(config(), "undisturbed")
    total = count_operations("counted")
    assert total > 150, "the stage has far more disk operations than that: they are not seen"
    for operation in (total * number // NUM_KILLS for number in range(1, NUM_KILLS)):
        root = f"killed{operation}"
        assert killed_at(root, max(1, operation))
        assert_recovered(root, undisturbed.digest)


@pytest.mark.parametrize("seed", range(2))
def test_killed_again_and_again(seed):
    undisturbed = curate(config(), "undisturbed")
    chance = random.Random(seed)
    assert sum(killed_at("killed", chance.randint(10, 90)) for _ in range(5)) > 1
    assert_recovered("killed", undisturbed.digest)


def assert_recovered(root: str, digest: str) -> None:
    made = curate(config(), root)
    assert made.digest == digest
    assert manifest.verify(made.path, made.manifest) == []
    left = [path for path in (Path(root) / "artifacts").rglob(".*") if path.name != ".file-hashes.json"]
    assert left == [] and not (made.path / "work").exists()


@pytest.mark.parametrize("finished", [0, 1, 5])
def test_a_killed_run_reads_again_only_the_shard_that_it_was_at(monkeypatch, finished):
    whole = ReadAndJudge._judge
    judged: list[Path] = []

    def judge(self: ReadAndJudge, part: Any, read: Any, folder: Path) -> None:
        if len(judged) == finished:
            raise KeyboardInterrupt
        judged.append(folder)
        whole(self, part, read, folder)

    monkeypatch.setattr(ReadAndJudge, "_judge", judge)
    with pytest.raises(KeyboardInterrupt):
        curate(config().model_copy(update={"workers": 1}))
    before, finished = len(judged), 10**9
    curate(config())
    names = [f"{folder.parent.name}/{folder.name}" for folder in judged]
    assert len(set(names)) == len(names) > before + 5


def test_a_run_that_was_killed_while_it_was_published_has_nothing_left_to_do(monkeypatch):
    undisturbed = curate(config(), "undisturbed")

    def killed(*arguments: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(manifest, "hash_files", killed)
        curate(config())
    monkeypatch.setattr("stages.curate.pipeline.Curation", killed)
    assert curate(config()).digest == undisturbed.digest


def test_what_was_read_of_a_source_that_changed_is_not_used_again(monkeypatch):
    from stages.errors import TryAgain

    before = Path("a0.jsonl").read_bytes()
    whole = ReadAndJudge.__call__

    def change_and_read(self: ReadAndJudge, part: Any) -> Any:
        write_jsonl("a0.jsonl", corpus(40, seed=9))
        return whole(self, part)

    with monkeypatch.context() as patched, pytest.raises(TryAgain):
        patched.setattr(ReadAndJudge, "__call__", change_and_read)
        curate(config())
    assert not list(Store(Path()).all("curate"))
    Path("a0.jsonl").write_bytes(before)
    assert curate(config()).digest == curate(config(), "undisturbed").digest
