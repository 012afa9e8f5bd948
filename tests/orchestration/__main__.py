"""`make test-orchestration`: every trial of the desk, one after another, and a table of them.

    make test-orchestration
    make test-orchestration ARGS="--only kill_matrix"
    make test-orchestration ARGS="--record"             # put the kill matrix into tests/benchmarks/results

Each is a module of this folder that can be run alone. The last line is one JSON object; the exit code is 0 only if
each trial's is.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import print_table

FOLDER = Path(__file__).parent
RECORDED = "kill_matrix"
TRIALS = (*sorted(path.stem for path in FOLDER.glob("trial_*.py")), RECORDED)


def run(trial: str, *arguments: str) -> tuple[int, float, dict[str, Any]]:
    """(exit code, minutes, the JSON object that it ended with) of a trial, whose output is shown as it comes."""
    began, last = time.monotonic(), ""
    command = [sys.executable, "-u", "-m", f"tests.orchestration.{trial}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    try:
        found = json.loads(last)
    except ValueError:
        found = {}
    return process.returncode, (time.monotonic() - began) / 60, found if isinstance(found, dict) else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TRIALS, help="trials")
    parser.add_argument("--record", action="store_true", help="put the figures into tests/benchmarks/results")
    arguments = parser.parse_args()
    rows, codes = [], []
    for trial in arguments.only or TRIALS:
        print(f"\n{trial}", flush=True)
        code, minutes, found = run(trial, *(["--record"] if arguments.record and trial == RECORDED else []))
        figures = found.get("figures", found)
        said = ", ".join(f"{name} {value}" for name, value in figures.items() if isinstance(value, int | float | str))
        rows.append([trial, "well" if code == 0 else f"exit code {code}", round(minutes, 1), said])
        codes.append(code)
    print()
    print_table(("trial", "ended", "minutes", "figures"), rows)
    print(json.dumps({"test": "orchestration", "trials": len(rows), "failed": sum(code != 0 for code in codes)}))
    sys.exit(1 if any(codes) else 0)


if __name__ == "__main__":
    main()
