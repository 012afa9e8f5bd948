"""What several test modules share."""

import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import settings

from stages.recipe import CHAIN
from tests.end_to_end.shell import REPOSITORY, TINY, run

# A shared machine makes any single example slow now and then. Where a failure must mean that the change is wrong, in
# CI, the examples are the same every time; elsewhere they are new ones.
settings.register_profile("longhaul", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("longhaul")

# Ray makes its workers give way to everything else: beside another test that computes they would hardly get on.
os.environ.setdefault("RAY_worker_niceness", "0")

# Whole chains of processes. These files begin first, so that at the end of a run no worker waits for one of them.
LONG = (
    "tests/flows/test_pipeline.py",
    "tests/stages/pretrain/parallel/test_equality.py",
    "tests/stages/pretrain/test_survival.py",
    "tests/chaos/test_short.py",
    "tests/stages/pretrain/test_runs_spread.py",
    "tests/flows/test_evaluation.py",
    "tests/end_to_end/test_chain.py",
    "tests/stages/pretrain/test_runs.py",
    "tests/stages/curate/test_ray.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        file = item.path.relative_to(REPOSITORY).as_posix()
        return LONG.index(file) if file in LONG else len(LONG)

    items.sort(key=rank)


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which each stage of the tiny recipe was run alone, by its own command, where Prefect is not
    installed, and lm-eval only where it is needed. Its users leave it as it was: all workers of pytest share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    root, made = shared / "tiny", shared / "tiny-made"
    with open(shared / "tiny-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            for stage in CHAIN:
                absent = ("prefect",) if stage == "evaluate" else ("prefect", "lm_eval")
                result = run(f"stages.{stage}", TINY, "--root", root, absent=absent)
                assert result.returncode == 0, f"{stage}: {result.stderr[-4000:]}"
            made.touch()
    return root
