"""A stage that is killed at any write, rename or fsync, and run again, gives what an undisturbed run gives, and
leaves nothing behind."""

import itertools
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from stages import manifest
from tests.stages.fake_stages import digests, resolver, run_chain, write_source

DISK_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "os.truncate"}
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR


def run_killed_at(root: Path, operation: int) -> bool:
    """Run the chain in a child that is killed just before its disk operation number `operation`. True if it was,
    False if it came to the end."""
    pid = os.fork()
    if pid == 0:
        _kill_self_at(str(root), operation)
        run_chain(resolver(root))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def _kill_self_at(root: str, operation: int) -> None:
    counter = itertools.count(1)

    def count() -> None:
        if next(counter) == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple) -> None:
        writes = event != "open" or (isinstance(arguments[2], int) and arguments[2] & WRITE_FLAGS)
        if event in DISK_EVENTS and writes and str(arguments[0]).startswith(root):
            count()

    def counted(function):  # type: ignore[no-untyped-def]
        def call(*arguments):  # type: ignore[no-untyped-def]
            count()
            return function(*arguments)

        return call

    sys.addaudithook(audit)
    for name in ("fsync", "write", "ftruncate"):
        setattr(os, name, counted(getattr(os, name)))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    root = tmp_path_factory.mktemp("undisturbed")
    write_source(root)
    return digests(run_chain(resolver(root)))


def assert_recovered(root: Path, undisturbed: dict[str, list[str]]) -> None:
    assert digests(run_chain(resolver(root))) == undisturbed
    chain = resolver(root)
    for artifact in chain.store.all():
        assert manifest.verify(artifact.path, artifact.manifest) == []
    left = [path for path in (root / "artifacts").rglob(".*")]
    assert left == [], "work directories, leases or temporary files were left behind"


@pytest.mark.slow
def test_killed_once_at_every_disk_operation(tmp_path: Path, undisturbed: dict[str, list[str]]) -> None:
    for operation in itertools.count(1):
        root = tmp_path / str(operation)
        write_source(root)
        if not run_killed_at(root, operation):
            break
        assert_recovered(root, undisturbed)
    assert operation > 100, "the chain has far more disk operations than that: the fault injector does not see them"


@pytest.mark.parametrize("seed", range(10))
def test_killed_again_and_again(tmp_path: Path, undisturbed: dict[str, list[str]], seed: int) -> None:
    write_source(tmp_path)
    chance = random.Random(seed)
    kills = sum(run_killed_at(tmp_path, chance.randint(1, 60)) for _ in range(8))
    assert kills > 0
    assert_recovered(tmp_path, undisturbed)
