"""The flow against a real embedded server, on real text: retries, hits, what a change builds again, a bad recipe."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import psutil
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from flows.server import server_for_this_run
from stages.recipe import CHAIN
from stages.store import Store
from tests.chaos import chain
from tests.end_to_end.shell import REPOSITORY, TINY, run_here

LIMIT_SECONDS = 900


class Desk:
    """A store and a Prefect home of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.home = folder / "prefect"
        self.failed = folder / "failed"
        self.output, self.results = self.root / "output.txt", self.root / "results.txt"
        for path in (self.root, self.failed):
            path.mkdir()

    def start(self) -> subprocess.Popen[bytes]:
        """The flow, each stage of which fails once, in the background, as the leader of a process group of its own,
        like a command in a terminal. It starts a server of its own."""
        environment = {
            **os.environ,
            "PREFECT_HOME": str(self.home),
            "FAIL_ONCE_FOLDER": str(self.failed),
            "PYTHONPATH": str(Path(__file__).parent / "fail_once"),
        }
        environment.pop("PREFECT_API_URL", None)
        with open(self.output, "wb") as output, open(self.results, "wb") as results:
            return subprocess.Popen(
                [sys.executable, "-m", "flows.pipeline", str(TINY), "--root", str(self.root)],
                cwd=REPOSITORY,
                env=environment,
                stdout=results,
                stderr=output,
                start_new_session=True,
                # Tests that run in the background ignore Ctrl-C, and what they start would do so too.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def run_here(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The flow in this process, with Prefect as it is set here."""
        return run_here("flows.pipeline", TINY, "--root", self.root, *arguments)

    def task_runs(self) -> list[tuple[str, str, int]]:
        """(name, state, number of attempts) of every task run that the server has recorded, oldest first."""
        with sqlite3.connect(self.home / "prefect.db") as database:
            return database.execute("select name, state_type, run_count from task_run order by created").fetchall()

    def digests(self) -> dict[str, str]:
        return {f"{artifact.stage}/{artifact.key}": artifact.digest for artifact in Store(self.root).all()}


def wait_for_worker(process: subprocess.Popen[bytes], root: Path, trial: bool = False) -> list[psutil.Process]:
    """All descendants of a chain, once a worker of the training, or of preflight's trial, is among them."""
    for _ in range(LIMIT_SECONDS * 10):
        assert process.poll() is None, (root / "output.txt").read_text()
        family = psutil.Process(process.pid).children(recursive=True)
        with suppress(psutil.NoSuchProcess):
            if any(is_worker(child, trial) for child in family):
                return family
        time.sleep(0.1)
    raise AssertionError("no worker was started")


def is_worker(process: psutil.Process, trial: bool) -> bool:
    """Whether a process was forked by a launcher, which preflight has started, or another process."""
    launcher = process.parent()
    supervisor = launcher.parent() if launcher else None
    if launcher is None or supervisor is None or "stages.pretrain.supervision.launcher" not in launcher.cmdline():
        return False
    return trial == ("stages.preflight" in supervisor.cmdline())


@dataclass(frozen=True)
class Ended:
    """How a flow ended that was stopped: its exit code, what outlived it, what it wrote."""

    exit_code: int
    survivors: list[psutil.Process]
    output: str


@dataclass(frozen=True)
class Story:
    """A chain that was killed in preflight, interrupted in its training, killed in its training, and then came to its
    end; each stage failed once on its way. `digests` are those of that moment."""

    desk: Desk
    killed: Ended
    interrupted: Ended
    shell: chain.Harm
    output: str
    digests: dict[str, str]


def stop(desk: Desk, how: Callable[[int], None], trial: bool = False) -> Ended:
    flow = desk.start()
    family = wait_for_worker(flow, desk.root, trial)
    how(flow.pid)
    exit_code = flow.wait(60)
    _, alive = psutil.wait_procs(family, timeout=30)
    return Ended(exit_code, alive, desk.output.read_text())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """One chain for all that can be seen on it. First the flow's process alone gets a SIGKILL; then the flow gets the
    signal of Ctrl-C, to the whole foreground group; then all processes of the chain, gone on with from a shell, get a
    SIGKILL at once."""
    desk = Desk(tmp_path_factory.mktemp("desk"))
    killed = stop(desk, lambda pid: os.kill(pid, signal.SIGKILL), trial=True)
    interrupted = stop(desk, lambda pid: os.killpg(pid, signal.SIGINT))
    shell, harm = chain.start(desk.root, processes=1), chain.Harm()
    wait_for_worker(shell, desk.root)
    chain.kill(shell, everything=True, harm=harm)
    flow = desk.start()
    try:
        assert flow.wait(LIMIT_SECONDS) == 0, desk.output.read_text()[-8000:]
    finally:
        flow.kill()
    return Story(desk, killed, interrupted, harm, desk.results.read_text(), chain.digests(desk.root))


@pytest.fixture(scope="module")
def desk(tiny_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Where everything has been made; with a server that outlives the flows of this process: each flow's own takes
    seconds."""
    desk = Desk(tmp_path_factory.mktemp("made"))
    shutil.copytree(tiny_root, desk.root, symlinks=True, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(desk.home))
        patch.delenv("PREFECT_API_URL", raising=False)
        settings = temporary_settings({PREFECT_HOME: desk.home}, restore_defaults={PREFECT_API_URL})
        with settings, server_for_this_run():
            yield desk


@pytest.mark.slow
def test_each_stage_failed_once_was_retried_and_completed(story: Story) -> None:
    assert sorted(path.name for path in story.desk.failed.iterdir()) == sorted(CHAIN), (
        "a fault was not injected everywhere"
    )
    last: dict[str, str] = {}
    attempts: dict[str, int] = {}
    for name, state, run_count in story.desk.task_runs():
        stage = name.split(" ")[0].split("-")[0]
        last[stage], attempts[stage] = state, max(attempts.get(stage, 0), run_count)
    assert last == dict.fromkeys(CHAIN, "COMPLETED")
    assert attempts == dict.fromkeys(CHAIN, 2)


@pytest.mark.slow
def test_nothing_outlives_the_flow_and_the_next_one_goes_on(story: Story) -> None:
    assert story.killed.exit_code == -signal.SIGKILL and story.killed.survivors == []
    assert story.interrupted.exit_code == 128 + signal.SIGINT and story.interrupted.survivors == []
    output = story.interrupted.output
    assert "plan         up to date" in output and "interrupted; the same command continues" in output
    assert (story.shell.kills, story.shell.orphans) == (1, 0), story.shell.problems
    assert list((story.desk.root / "artifacts").glob("*/.lease-*")) == []


@pytest.mark.slow
def test_killed_and_restarted_it_ends_with_the_digests_of_an_undisturbed_chain(story: Story, tiny_root: Path) -> None:
    """A short version of `make chaos-chain`; and the flow makes what the commands make."""
    assert {name.split("/")[0] for name in story.digests} == {*CHAIN, "checkpoint"}
    undisturbed = {f"{artifact.stage}/{artifact.key}": artifact.digest for artifact in Store(tiny_root).all()}
    assert story.digests.items() <= undisturbed.items()


@pytest.mark.slow
def test_the_end_says_where_everything_is(story: Story) -> None:
    for name in ("report", "model", "sample"):
        (line,) = [line for line in story.output.splitlines() if line.startswith(f"{name} ")]
        assert Path(line.split(maxsplit=1)[1]).exists()


@pytest.mark.slow
def test_every_checkpoint_was_evaluated(story: Story) -> None:
    store = Store(story.desk.root)
    steps = [artifact.facts["step"] for artifact in store.all("checkpoint")]
    assert len(steps) >= 2
    assert sorted(artifact.facts["model"]["step"] for artifact in store.all("evaluate")) == sorted(steps)


def test_a_second_run_builds_nothing_and_a_change_builds_what_it_touches(desk: Desk) -> None:
    before = desk.digests()
    result = desk.run_here()
    assert result.returncode == 0, result.stderr[-4000:]
    assert desk.digests() == before
    assert "started (" not in result.stderr
    result = desk.run_here("--set", "export.seed=5")
    assert result.returncode == 0, result.stderr[-4000:]
    assert {name.split("/")[0] for name in desk.digests().keys() - before.keys()} == {"export", "report"}


def test_what_the_user_wrote_is_not_retried(desk: Desk) -> None:
    recorded = len(desk.task_runs())
    result = desk.run_here("--set", "pretrain.mixture={reference=1.0, poetry=1.0}", "--set", "pretrain.seed=9")
    assert result.returncode == 2, result.stderr[-4000:]
    assert "poetry" in result.stderr and "Traceback" not in result.stderr
    failed = [run for run in desk.task_runs()[recorded:] if run[1] == "FAILED"]
    assert [run_count for _, _, run_count in failed] == [1]


def test_a_missing_source_is_not_retried(desk: Desk) -> None:
    recorded = len(desk.task_runs())
    result = desk.run_here("--set", 'curate.sources=[{kind="text", path="absent/*.txt", domain="x"}]')
    assert result.returncode == 2, result.stderr[-4000:]
    assert "absent" in result.stderr and "Traceback" not in result.stderr
    assert [run[1:] for run in desk.task_runs()[recorded:]] == [("FAILED", 1)]


def test_a_bad_recipe_is_refused_before_a_server_starts(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with temporary_settings({PREFECT_HOME: desk.home}, restore_defaults={PREFECT_API_URL}):
        result = desk.run_here("--set", "pretrain.learning_rat=1")
    assert result.returncode == 2
    assert "did you mean learning_rate?" in result.stderr
    assert not desk.home.exists()
