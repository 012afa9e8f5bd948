"""`make chaos-chain`: kill the whole chain with SIGKILL at random moments, restart it each time, and compare the
digests with an undisturbed run.

Seeded. Half of the kills hit only the stage's own process, so that what it had started must notice; the others hit
every process of it at once. The last line is one JSON object; the exit code is 0 only if no digest differs and no
process was left over.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from stages import manifest
from stages.store import Store

REPOSITORY = Path(__file__).parents[2]
TINY = REPOSITORY / "deployments" / "recipes" / "tiny.toml"
ORPHAN_SECONDS = 10.0
RUN_LIMIT_SECONDS = 600.0


@dataclass
class Harm:
    """What went wrong, and how much was tried."""

    kills: int = 0
    runs: int = 0
    digest_mismatches: int = 0
    orphans: int = 0
    problems: list[str] = field(default_factory=list)


def start(root: Path, processes: int) -> subprocess.Popen[bytes]:
    """The whole chain from a shell, in a session of its own."""
    command = [sys.executable, "-m", "stages.report", str(TINY), "--upstream", "--root", str(root)]
    command += ["--set", f"pretrain.num_processes={processes}"]
    with open(root / "output.txt", "ab") as output:
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=output, start_new_session=True)


def finish(process: subprocess.Popen[bytes], root: Path) -> None:
    if process.wait(timeout=RUN_LIMIT_SECONDS) != 0:
        raise RuntimeError(f"the chain ended with {process.returncode}:\n{(root / 'output.txt').read_text()[-4000:]}")


def digests(root: Path) -> dict[str, str]:
    """Digest of every artifact, each verified byte by byte."""
    found = {}
    for artifact in Store(root).all():
        assert manifest.verify(artifact.path, artifact.manifest) == [], artifact.path
        found[f"{artifact.stage}/{artifact.key}"] = artifact.digest
    return found


def undisturbed(root: Path, processes: int) -> tuple[dict[str, str], float]:
    """Digests of a run that nobody kills, and its seconds."""
    started = time.monotonic()
    finish(start(root, processes), root)
    return digests(root), time.monotonic() - started


def kill(process: subprocess.Popen[bytes], everything: bool, harm: Harm) -> None:
    """SIGKILL, to the process alone or to all that it started; then nothing of it may go on living."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    for victim in family if everything else []:
        _kill(victim)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    harm.kills += 1
    _, left = psutil.wait_procs(family, timeout=ORPHAN_SECONDS)
    harm.orphans += len(left)
    for orphan in left:
        harm.problems.append(f"process {orphan.pid} outlived its parent")
        _kill(orphan)


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):  # it may have ended by itself in between
        process.kill()


def disturb(expected: dict[str, str], seconds: float, *, kills: int, seed: int, processes: int, folder: Path) -> Harm:
    """Run, kill and restart until `kills` kills have been made; start afresh whenever a run has come to its end."""
    chance, harm = random.Random(seed), Harm()
    while harm.kills < kills:
        root = Path(tempfile.mkdtemp(dir=folder))
        harm.runs += 1
        while harm.kills < kills:
            process = start(root, processes)
            try:
                process.wait(timeout=chance.uniform(0.02, 0.6) * seconds)
            except subprocess.TimeoutExpired:
                kill(process, chance.random() < 0.5, harm)
            else:
                break
        finish(start(root, processes), root)
        for name, digest in digests(root).items():
            if expected.get(name) != digest:
                harm.digest_mismatches += 1
                harm.problems.append(f"{name}: {digest} in {root}, {expected.get(name)} undisturbed")
        if digests(root).keys() != expected.keys():
            harm.digest_mismatches += 1
            harm.problems.append(f"{root} holds other artifacts than the undisturbed run")
    return harm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    totals: dict[str, int] = {}
    for processes in arguments.processes:
        with tempfile.TemporaryDirectory() as folder:
            reference = Path(folder, "undisturbed")
            reference.mkdir()
            expected, seconds = undisturbed(reference, processes)
            print(f"{processes} process(es): undisturbed in {seconds:.0f} s, {len(expected)} artifacts", flush=True)
            harm = disturb(
                expected, seconds, kills=arguments.kills, seed=arguments.seed, processes=processes, folder=Path(folder)
            )
        print("\n".join(harm.problems), flush=True)
        for name in ("kills", "runs", "digest_mismatches", "orphans"):
            totals[name] = totals.get(name, 0) + getattr(harm, name)
    print(json.dumps({"chaos": "chain", "seed": arguments.seed, "processes": arguments.processes, **totals}))
    sys.exit(1 if totals["digest_mismatches"] or totals["orphans"] else 0)


if __name__ == "__main__":
    main()
