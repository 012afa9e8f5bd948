"""Trainings on two processes that a trial disturbs: what they need is made once, and each has a root of its own.

Every root leads to the same artifacts, digest by digest, whatever is done to the training on its way.
"""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from stages.pretrain.checkpoints.checkpoint import scan
from stages.pretrain.job import RunDirectory, read_lines
from tests.chaos.chain import digests
from tests.orchestration import families
from tests.orchestration.api import wait_for
from tests.orchestration.desk import REPOSITORY, TINY, Desk

NUM_STEPS = 240
DURABLE_STEPS = 80
DISTURBED_STEP = 90
SETTINGS = (
    "pretrain.num_processes=2",
    f"pretrain.num_steps={NUM_STEPS}",
    f"pretrain.checkpoint_every_steps={DURABLE_STEPS}",
    "pretrain.checkpoint_seconds=2.0",
)
STAGE_SECONDS = 600.0
START_SECONDS = 900.0
SAMPLE_SECONDS = 1.0


def run_stage(stage: str, root: Path, *arguments: str) -> None:
    """A stage of these trainings from a shell, to its end."""
    command = [sys.executable, "-m", f"stages.{stage}", str(TINY), "--root", str(root), *arguments]
    for setting in SETTINGS:
        command += ["--set", setting]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=STAGE_SECONDS)
    if result.returncode:
        raise RuntimeError(f"{stage} ended with {result.returncode}:\n{result.stderr[-4000:]}")


def undisturbed(folder: Path) -> dict[str, str]:
    """Make, once, what the trainings need, in folder/upstream, and one that nobody disturbs, in folder/undisturbed; the
    digests of all artifacts of that."""
    for name in ("upstream", "undisturbed"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    run_stage("preflight", folder / "upstream", "--upstream")
    shutil.copytree(folder / "upstream", folder / "undisturbed", dirs_exist_ok=True)
    run_stage("pretrain", folder / "undisturbed")
    return digests(folder / "undisturbed")


class Training:
    """One training in a root of its own, started on a desk; `root` must not be there."""

    def __init__(self, desk: Desk, upstream: Path, root: Path) -> None:
        self.desk, self.root = desk, root
        shutil.copytree(upstream, root)

    def start(self) -> str:
        """Id of a new run of the deployment."""
        parameters: Mapping[str, Any] = {"recipe": self.desk.recipe(*SETTINGS), "root": str(self.root)}
        return self.desk.api.start("stage/pretrain", parameters)

    @property
    def step(self) -> int:
        """The last one that was written down."""
        lines = [line["step"] for path in self._runs() for line in read_lines(RunDirectory(path).timing)]
        return max(lines, default=0)

    def reach(self, step: int, otherwise: Callable[[], str], *, seconds: float = START_SECONDS) -> None:
        """Wait for a step. Raises TimeoutError, or RuntimeError as soon as `otherwise` says why it is not reached."""

        def is_there() -> bool:
            is_reached = self.step >= step
            if not is_reached and (reason := otherwise()):
                raise RuntimeError(f"the training has not come to step {step}: {reason}")
            return is_reached

        wait_for(is_there, seconds, lambda: f"{self.root.name} is at step {self.step}")

    def digests(self) -> dict[str, str]:
        """Of every artifact, each verified byte by byte."""
        return digests(self.root)

    def leases(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in (self.root / "artifacts").glob("*/.lease-*"))

    def leftovers(self) -> list[str]:
        """What is being built, or half removed."""
        found = [path for pattern in ("artifacts/*/.work-*", "runs/**/*.tmp") for path in self.root.glob(pattern)]
        return sorted(str(path.relative_to(self.root)) for path in found)

    def ends(self) -> list[dict[str, Any]]:
        """How its attempts ended, as its own account has it."""
        events = [line for path in self._runs() for line in read_lines(path / "attempts.jsonl")]
        return [event for event in events if event["event"] == "end"]

    def last_checkpoint(self) -> int:
        """The newest local or durable checkpoint that is complete."""
        steps = [step for path in self._runs() for step in scan(RunDirectory(path).checkpoints).complete]
        return max(steps, default=0)

    def _runs(self) -> list[Path]:
        return sorted((self.root / "runs").glob("*"))


class Writers:
    """How many trainings of a desk write at once, looked at now and then while the block lasts."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.most = 0

    def __enter__(self) -> "Writers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            with suppress(OSError):
                self.most = max(self.most, writers(self._desk))


def writers(desk: Desk) -> int:
    """Trainings whose ranks live now: by launcher, and ranks without one are another."""
    found = desk.processes()
    launchers = {process.pid for process in families.launchers(found)}
    parents = set()
    for rank in families.ranks(found):
        with suppress(psutil.NoSuchProcess):
            parents.add(rank.ppid())
    return len(launchers | parents)


def wall_seconds(timestamp: str) -> float:
    """Of a time of the server, seconds since the epoch."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
