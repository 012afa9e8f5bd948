"""What becomes of a training when something of the desk, or all of it, is killed: on a real desk, with real kills.

    python -m tests.orchestration.kill_matrix
    python -m tests.orchestration.kill_matrix --only cancel 'flow SIGKILL' --keep /tmp/seen    # these; the folder stays

Each case starts a training on two processes from its deployment, does to it what the case says once it is well under
way, and follows its run until the training is complete. Cases that are done stand in .bench/kill-matrix, for the
sources as they are, and are not run again. The last line is one JSON object; the exit code is 0 only if every run
ended as its case says, with the digests of an undisturbed training, and no process, lease or slot was left over.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from stages.pretrain.job import read_lines
from tests.benchmarks.harness import report
from tests.orchestration.cases import CASES
from tests.orchestration.desk import REPOSITORY, Desk
from tests.orchestration.others import interrupted, late_heartbeat
from tests.orchestration.result import HEADERS, Result
from tests.orchestration.trainings import Training, undisturbed
from tests.orchestration.trial import Trial

PACKAGES = ("prefect", "torch")
BY_NAME = {case.name: case for case in CASES}
CTRL_C, LATE = "Ctrl-C", "late heartbeat"
NAMES = (CTRL_C, *BY_NAME, LATE)


def state() -> str:
    """What decides on the results: a digest of the sources."""
    digest = sha256()
    for folder in ("data", "stages", "flows", "deployments", "tests/orchestration"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def place(keep: Path | None) -> Iterator[Path]:
    """A folder, which stays if it is named."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
    else:
        with tempfile.TemporaryDirectory(prefix="kill-matrix-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)


def results(names: Sequence[str], folder: Path, known: Path, *, fresh: bool) -> Iterator[Result]:
    """Of each case; those that are not in `known` are run, on one desk as long as it stands, and put there."""
    known.parent.mkdir(parents=True, exist_ok=True)
    done = {} if fresh else {line["case"]: Result(**line) for line in read_lines(known)}
    desk: Desk | None = None
    expected: dict[str, str] = {}
    try:
        for name in names:
            if name not in done:
                expected = expected or undisturbed(folder)
                desk = desk or Desk(folder / f"desk-{time.time_ns():x}")
                done[name] = result = one(name, desk, folder, expected)
                if result.problems:  # the next case shall not suffer from this one
                    desk.end()
                    desk = None
                with open(known, "a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
            yield done[name]
    finally:
        if desk is not None:
            desk.end()


def one(name: str, desk: Desk, folder: Path, expected: dict[str, str]) -> Result:
    """One case, in a root of its own."""
    try:
        if name == CTRL_C:
            return interrupted(folder, folder / "upstream", expected)
        desk.up()
        switch_off_evaluations(desk)
        if name == LATE:
            return late_heartbeat(desk, folder / "undisturbed", expected)
        training = Training(desk, folder / "upstream", folder / "roots" / f"{time.time_ns():x}")
        return Trial(BY_NAME[name], desk, training, expected).carry_through()
    except Exception:
        return Result(name, problems=[traceback.format_exc(limit=-4)])


def switch_off_evaluations(desk: Desk) -> None:
    """They are not what is tried here, and would take their share of the machine."""
    for automation in desk.api.automations():
        if "evaluate" in automation["name"] and automation["enabled"]:
            desk.api.call("PATCH", f"/automations/{automation['id']}", {"enabled": False})


def told(result: Result) -> str:
    """A line about a case, and what went wrong in it."""
    line = (
        f"{result.case}: {result.name} after {result.state_seconds:.1f} s ({result.message[:160]!r}), complete after "
    )
    line += f"{result.complete_seconds:.0f} s; took {result.seconds:.0f} s"
    return "\n".join([line, *(f"  {problem}" for problem in result.problems)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="CASE", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--fresh", action="store_true", help="run finished cases again")
    parser.add_argument("--keep", type=Path, help="folder in which all stays")
    parser.add_argument("--record", action="store_true", help="put the figures into tests/benchmarks/results")
    arguments = parser.parse_args()
    known = REPOSITORY / ".bench" / "kill-matrix" / f"{state()}.jsonl"
    found = []
    with place(arguments.keep) as folder:
        for result in results(arguments.only or NAMES, folder, known, fresh=arguments.fresh):
            print(told(result), flush=True)
            found.append(result)
    figures = {
        "cases": len(found),
        "minutes": sum(result.seconds for result in found) / 60,
        "orphans": sum(result.orphans for result in found),
        "digest_mismatches": sum(not result.digests_equal for result in found),
        "most_writers": max(result.writers for result in found),
        "leases": sum(result.leases for result in found),
        "problems": sum(len(result.problems) for result in found),
    }
    report("test-orchestration", HEADERS, [result.row() for result in found], figures, PACKAGES, keep=arguments.record)
    sys.exit(1 if figures["problems"] else 0)


if __name__ == "__main__":
    main()
