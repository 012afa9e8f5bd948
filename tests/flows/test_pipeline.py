"""The flow against a real embedded server, on real text: retries, hits, what a change builds again, a bad recipe."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from stages.recipe import STAGES
from stages.store import Store

REPOSITORY = Path(__file__).parents[2]
TINY = REPOSITORY / "deployments" / "recipes" / "tiny.toml"


class Desk:
    """A store and a Prefect home of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.home = folder / "prefect"
        self.failed = folder / "failed"
        for path in (self.root, self.failed):
            path.mkdir()

    def run(self, *arguments: str, fail_once: bool = False) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PREFECT_HOME": str(self.home), "FAIL_ONCE_FOLDER": str(self.failed)}
        environment.pop("PREFECT_API_URL", None)
        if fail_once:
            environment["PYTHONPATH"] = str(Path(__file__).parent / "fail_once")
        command = [sys.executable, "-m", "flows.pipeline", str(TINY), "--root", str(self.root), *arguments]
        return subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=400, check=False
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """The flow in the background, as the leader of a process group of its own, like a command in a terminal."""
        environment = {**os.environ, "PREFECT_HOME": str(self.home)}
        command = [sys.executable, "-m", "flows.pipeline", str(TINY), "--root", str(self.root), *arguments]
        with open(self.root / "output.txt", "wb") as output:
            return subprocess.Popen(
                command, cwd=REPOSITORY, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def task_runs(self) -> list[tuple[str, str, int]]:
        """(name, state, number of attempts) of every task run that the server has recorded."""
        with sqlite3.connect(self.home / "prefect.db") as database:
            return database.execute("select name, state_type, run_count from task_run").fetchall()

    def digests(self) -> dict[str, str]:
        return {f"{artifact.stage}/{artifact.key}": artifact.digest for artifact in Store(self.root).all()}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A desk on which the chain has run once, each stage failing once on its way."""
    desk = Desk(tmp_path_factory.mktemp("desk"))
    result = desk.run(fail_once=True)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-6000:]
    desk.output = result.stdout  # type: ignore[attr-defined]
    return desk


def test_each_stage_failed_once_was_retried_and_completed(desk: Desk) -> None:
    assert sorted(path.name for path in desk.failed.iterdir()) == sorted(STAGES), "a fault was not injected everywhere"
    attempts: dict[str, int] = {}
    for name, state, run_count in desk.task_runs():
        assert state == "COMPLETED", name
        stage = name.split(" ")[0].split("-")[0]
        attempts[stage] = max(attempts.get(stage, 0), run_count)
    assert attempts == dict.fromkeys(STAGES, 2)


def test_the_end_says_where_everything_is(desk: Desk) -> None:
    output = desk.output  # type: ignore[attr-defined]
    for name in ("report", "model", "sample"):
        (line,) = [line for line in output.splitlines() if line.startswith(f"{name} ")]
        assert Path(line.split(maxsplit=1)[1]).exists()


def test_every_checkpoint_was_evaluated(desk: Desk) -> None:
    store = Store(desk.root)
    steps = [artifact.facts["step"] for artifact in store.all("checkpoint")]
    assert len(steps) >= 2
    assert sorted(artifact.facts["model"]["step"] for artifact in store.all("evaluate")) == sorted(steps)


def test_a_second_run_builds_nothing_and_a_change_builds_what_it_touches(desk: Desk) -> None:
    before = desk.digests()
    result = desk.run()
    assert result.returncode == 0, result.stderr[-4000:]
    assert desk.digests() == before
    assert "started (" not in result.stderr
    result = desk.run("--set", "export.seed=5")
    assert result.returncode == 0, result.stderr[-4000:]
    assert {name.split("/")[0] for name in desk.digests().keys() - before.keys()} == {"export", "report"}


def test_what_the_user_wrote_is_not_retried(desk: Desk) -> None:
    recorded = len(desk.task_runs())
    result = desk.run("--set", "pretrain.mixture={reference=1.0, poetry=1.0}", "--set", "pretrain.seed=9")
    assert result.returncode == 2, result.stderr[-4000:]
    assert "poetry" in result.stderr and "Traceback" not in result.stderr
    failed = [run for run in desk.task_runs()[recorded:] if run[1] == "FAILED"]
    assert [run_count for _, _, run_count in failed] == [1]


def wait_for_training(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All descendants of the flow, once the training's worker is among them."""
    for _ in range(1200):
        assert process.poll() is None
        family = psutil.Process(process.pid).children(recursive=True)
        with suppress(psutil.NoSuchProcess):
            if any(
                "stages.pretrain.worker" in child.cmdline() and "trial" not in " ".join(child.cmdline())
                for child in family
            ):
                return family
        time.sleep(0.1)
    raise AssertionError("the training did not start")


def test_nothing_outlives_the_flow_and_the_next_one_goes_on(desk: Desk) -> None:
    """SIGKILL of the flow's process, then, in its successor, Ctrl-C: a SIGINT to the whole foreground group."""
    settings = ("--set", "pretrain.num_steps=100000", "--set", "pretrain.checkpoint_every_steps=50000")
    flow = desk.start(*settings)
    family = wait_for_training(flow)
    flow.kill()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert flow.wait() == -signal.SIGKILL and alive == []
    flow = desk.start(*settings)
    family = wait_for_training(flow)
    os.killpg(flow.pid, signal.SIGINT)
    assert flow.wait(60) == 128 + signal.SIGINT
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    output = (desk.root / "output.txt").read_text()
    assert "preflight    up to date" in output and "interrupted; the same command continues" in output
    assert list((desk.root / "artifacts").glob("*/.lease-*")) == []


def test_a_missing_source_is_not_retried(desk: Desk) -> None:
    recorded = len(desk.task_runs())
    result = desk.run("--set", 'curate.sources=[{kind="text", path="absent/*.txt", domain="x"}]')
    assert result.returncode == 2, result.stderr[-4000:]
    assert "absent" in result.stderr and "Traceback" not in result.stderr
    assert [run[1:] for run in desk.task_runs()[recorded:]] == [("FAILED", 1)]


def test_a_bad_recipe_is_refused_before_a_server_starts(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    result = desk.run("--set", "pretrain.learning_rat=1")
    assert result.returncode == 2
    assert "did you mean learning_rate?" in result.stderr
    assert not (desk.home / "prefect.db").exists()
