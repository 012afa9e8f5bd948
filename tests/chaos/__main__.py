"""`make chaos`: disturb trainings on two processes by some 200 faults, and compare what comes out with an undisturbed
one.

    make chaos                              # seeds 0 to 43
    make chaos ARGS="--seeds 7:8 --keep /tmp/seen"      # one of them again; its folder stays

Seeded, so that what fails can be had again, and resumable: seeds that are done stand in .bench/chaos, for the sources
as they are, and are not run again. The last line is one JSON object; the exit code is 0 only if no digest differs, no
sample is lost or doubled, no process and no lease is left over, and every command ended as it should.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from stages.pretrain.job import read_lines
from tests.benchmarks.harness import report
from tests.chaos import training
from tests.chaos.figures import figures, harm
from tests.chaos.outcome import Outcome
from tests.chaos.plan import FULL_DISK, Plan, plan
from tests.chaos.run import REPOSITORY, Run
from tests.chaos.surroundings import possible

SEEDS = "0:44"
STEP_SECONDS = 0.15
REFERENCE = -1
PACKAGES = ("torch", "accelerate", "transformers", "pyarrow")
HEADERS = ("fault", "runs", "times")


def state() -> str:
    """What decides on the outcomes: a digest of the sources, less those that evaluate them."""
    digest = sha256()
    for folder in ("data", "stages", "tests/chaos", "tests/services"):
        for path in sorted(set((REPOSITORY / folder).rglob("*.py")) - {REPOSITORY / "tests/chaos/figures.py"}):
            digest.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def read(path: Path) -> dict[int, Outcome]:
    """Outcomes of finished seeds."""
    return {line["seed"]: Outcome.from_json(line) for line in read_lines(path)}


def outcomes(seeds: range, results: Path, *, fresh: bool, keep: Path | None) -> Iterator[Outcome]:
    """Of the undisturbed run first, then of each seed; those that are not in `results` are run and put there."""
    results.parent.mkdir(parents=True, exist_ok=True)
    done = {} if fresh else read(results)
    for seed in [REFERENCE, *seeds]:
        if seed not in done:
            made = Plan(seed, "undisturbed", ()) if seed == REFERENCE else plan(seed, steps=training.STEPS)
            done[seed] = carry_through(made, keep)
            with open(results, "a", encoding="utf-8") as file:
                file.write(json.dumps(done[seed].to_json()) + "\n")
        yield done[seed]


def carry_through(made: Plan, keep: Path | None) -> Outcome:
    """One run in a folder of its own, which stays below `keep` if that is given."""
    if keep is not None:
        folder = keep / f"seed-{made.seed}"
        folder.mkdir(parents=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        return Run(made, folder, steps=training.STEPS, step_seconds=STEP_SECONDS).carry_through()
    finally:
        if keep is None:
            shutil.rmtree(folder)


def told(outcome: Outcome) -> str:
    """A line about a run, and what went wrong in it."""
    kinds = ", ".join(happened.kind for happened in outcome.happened)
    line = f"seed {outcome.seed}: {outcome.family}, {outcome.seconds:.0f} s: {kinds or 'nothing'}"
    return "\n".join([line, *(f"  {problem}" for problem in [*outcome.problems, *outcome.leftovers])])


def table(disturbed: Sequence[Outcome]) -> list[list[Any]]:
    """Each kind of fault: in how many runs, and how often."""
    done = [[happened.kind for happened in outcome.happened] for outcome in disturbed]
    kinds = sorted({kind for run in done for kind in run})
    return [[kind, sum(kind in run for run in done), sum(run.count(kind) for run in done)] for kind in kinds]


def blocked_share() -> Any:
    """For how much of a synchronous save's time an asynchronous one blocks the training, measured now."""
    command = [sys.executable, "-m", "tests.benchmarks.checkpoint", "--keep-nothing"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if result.returncode:
        print(result.stderr[-2000:], file=sys.stderr)
        return None
    share = json.loads(result.stdout.splitlines()[-1])["figures"]["checkpoint_blocked_share"]
    return share["median"] if isinstance(share, dict) else share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default=SEEDS, help="FIRST:END")
    parser.add_argument("--fresh", action="store_true", help="run finished seeds again")
    parser.add_argument("--keep", type=Path, help="folder in which the runs stay")
    parser.add_argument("--record", action="store_true", help="put the figures into tests/benchmarks/results")
    arguments = parser.parse_args()
    first, end = map(int, arguments.seeds.split(":"))
    if not possible(FULL_DISK):
        print("without root, disks are not filled and links not disturbed: these faults are left out", flush=True)
    results = REPOSITORY / ".bench" / "chaos" / f"{state()}.jsonl"
    found = []
    for outcome in outcomes(range(first, end), results, fresh=arguments.fresh, keep=arguments.keep):
        print(told(outcome), flush=True)
        found.append(outcome)
    reference, disturbed = found[0], found[1:]
    counts = harm(disturbed, reference)
    last = {
        "chaos": "pretrain",
        "seeds": arguments.seeds,
        "faults": sum(len(outcome.happened) for outcome in disturbed),
        "runs": len(disturbed),
        "minutes": sum(outcome.seconds for outcome in found) / 60,
        **counts,
        **figures(disturbed, reference),
        "checkpoint_blocked_share": blocked_share(),
    }
    report("chaos", HEADERS, table(disturbed), last, PACKAGES, keep=arguments.record)
    print(json.dumps(last))
    sys.exit(1 if any(counts.values()) else 0)


if __name__ == "__main__":
    main()
