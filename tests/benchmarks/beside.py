"""`make bench-beside`: what an evaluation costs the training beside it, and how soon one begins.

A training of the demo's model is kept on one core, for longer than is measured. By turns it is left alone for a while,
and then has an evaluation of its first checkpoint beside it, which is kept on the other core (`evaluate.cpus`) as a
recipe would keep it. Of each pair the throughput while the evaluation ran is divided by that of the time before. With
`--shared` there are two rows more: both on one core, with the evaluation held to its share (`evaluate.most_slowdown`),
and the same without.

Then the tiny recipe goes through the whole flow on an embedded server: the delay is that from a checkpoint's event
`checkpoint.healthy` in the training's journal to `stage.started` in the journal of its evaluation, of the first
checkpoint, for which no evaluation before it has to end.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flows.process import die_with_parent
from stages.evaluate.beside import running_trainings
from stages.journal import read_events
from stages.store import Artifact, Store
from tests.benchmarks.harness import MINIMUM_PAIRS, measure, report

DEMO, TINY = Path("deployments/recipes/demo.toml"), Path("deployments/recipes/tiny.toml")
PACKAGES = ("prefect", "torch", "transformers")
APART, GOVERNED, UNGOVERNED = "a core each", "one core, governed", "one core, not governed"
ALONE_SECONDS = 12.0
SETTLING_SECONDS = 2.0
LIMIT_SECONDS = 600.0
SETTINGS = (
    "pretrain.num_steps=100000",
    "pretrain.checkpoint_every_steps=40",
    "pretrain.healthy_steps=5",
    "pretrain.threads=1",
    "pretrain.num_processes=1",
    "suites.last_names=[]",
)


def words(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


@contextmanager
def training(root: Path, core: int) -> Iterator[None]:
    """The demo's training, on one core, from its first checkpoint on."""
    command = [sys.executable, "-m", "stages.pretrain", str(DEMO), "--root", str(root), *words(SETTINGS)]
    tie = die_with_parent()

    def begin() -> None:
        tie()
        os.sched_setaffinity(0, {core})

    with open(root / "training.txt", "w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            preexec_fn=begin,
            start_new_session=True,
        )
    try:
        wait(lambda: process.poll() is not None or any(Store(root).all("checkpoint")))
        assert process.poll() is None, (root / "training.txt").read_text()[-4000:]
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(LIMIT_SECONDS)


def wait(until) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + LIMIT_SECONDS
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def steps(root: Path) -> int:
    """Steps that the running training has made."""
    (run,) = running_trainings(Store(root)).values()
    return run.timing.read_bytes().count(b"\n")


def throughput(root: Path, until) -> float:  # type: ignore[no-untyped-def]
    """Steps a second from now until `until()` returns true."""
    began, before = time.perf_counter(), steps(root)
    while not until():
        time.sleep(0.05)
    return (steps(root) - before) / (time.perf_counter() - began)


def pair(root: Path, settings: Sequence[str]) -> float:
    """Throughput beside an evaluation as a share of that of the time before it."""
    ends = time.perf_counter() + ALONE_SECONDS
    alone = throughput(root, lambda: time.perf_counter() > ends)
    first = min(Store(root).all("checkpoint"), key=lambda made: made.facts["step"])
    command = [sys.executable, "-m", "stages.evaluate", str(DEMO), "--root", str(root), "--rebuild"]
    command += [*words((*SETTINGS, *settings)), "--input", f"model={first.key}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        beside = throughput(root, lambda: process.poll() is not None)
    finally:
        process.kill()
    _, said = process.communicate()
    assert process.returncode == 0, said.decode()[-4000:]
    time.sleep(SETTLING_SECONDS)
    return beside / alone


def start_delay(folder: Path) -> float:
    """Seconds from the first checkpoint's health to the start of its evaluation, in the flow."""
    measure(
        [sys.executable, "-m", "flows.pipeline", str(TINY), "--root", str(folder), *words(["suites.last_names=[]"])],
        environment={"PREFECT_HOME": str(folder / "prefect")},
    )
    (training,) = Store(folder).all("pretrain")
    healthy = {event["key"]: event["time"] for event in events(training) if event["kind"] == "checkpoint.healthy"}
    started = {
        made.manifest.inputs["model"][0].key: next(
            event["time"] for event in events(made) if event["kind"] == "stage.started"
        )
        for made in Store(folder).all("evaluate")
    }
    first = min(healthy, key=healthy.__getitem__)
    return started[first] - healthy[first]


def events(made: Artifact) -> list[dict]:
    return list(read_events(made.path / "events.jsonl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=MINIMUM_PAIRS)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--shared", action="store_true", help="measure the sharing of one core too; takes minutes")
    arguments = parser.parse_args()
    one, other = sorted(os.sched_getaffinity(0))[:2]
    kinds = {APART: [f"evaluate.cpus=[{other}]"]}
    if arguments.shared:
        kinds[GOVERNED] = [f"evaluate.cpus=[{one}]"]
        kinds[UNGOVERNED] = [f"evaluate.cpus=[{one}]", "evaluate.most_slowdown=1e9"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        prepared = [sys.executable, "-m", "stages.preflight", str(DEMO), "--upstream", "--root", str(root)]
        measure([*prepared, *words(SETTINGS)])
        with training(root, one):
            pair(root, kinds[APART])  # warm-up
            shares = {name: [pair(root, settings) for _ in range(arguments.pairs)] for name, settings in kinds.items()}
    delays = []
    for _ in range(arguments.starts):
        with tempfile.TemporaryDirectory() as folder:
            delays.append(start_delay(Path(folder)))
    rows = [[name, *summary(found).values()] for name, found in shares.items()]
    figures = {"throughput_share_beside_evaluation": summary(shares[APART])}
    if arguments.shared:
        figures["throughput_share_on_one_core"] = summary(shares[GOVERNED])
        figures["throughput_share_on_one_core_not_governed"] = summary(shares[UNGOVERNED])
    figures["evaluation_start_seconds"] = summary(delays)
    report("beside", ("evaluation and training", "throughput kept", "least", "most"), rows, figures, PACKAGES)


def summary(found: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(found), "low": min(found), "high": max(found)}


if __name__ == "__main__":
    main()
