"""What is the same around every tool: which documents it gets, and what of its time counts.

    python -m tests.benchmarks.peers.curation.NAME --input FOLDER --few FOLDER --work FOLDER --report FILE.json

A folder holds Parquet files (id, text). The tool first runs once on a few documents, which takes what is paid once:
imports on first use, compiled kernels. Then it runs on the input, and again until `--least-seconds` have passed, each
time into an empty folder. Counted are CPU-seconds of the process and its children, user and system, from the input to
the finished result, per run: from closed Parquet files to closed Parquet files for tools that find duplicates, and
between columns or lists in memory for the others. What `prepare` and `found` do is not counted.
"""

import argparse
import json
import resource
import shutil
import time
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq


class Tool(Protocol):
    """A tool for one task."""

    def prepare(self, folder: Path) -> Any:
        """The input as the tool wants it: paths, or texts in memory."""

    def run(self, prepared: Any, out: Path, scratch: Path) -> Any:
        """Do the task. out, scratch: empty folders."""

    def found(self, prepared: Any, result: Any, out: Path) -> dict[str, Any]:
        """Something about the result that can be compared."""


def parquet_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def read_texts(folder: Path) -> pa.ChunkedArray:
    """All texts of a folder, large_string."""
    return pa.chunked_array(
        [
            chunk
            for path in parquet_files(folder)
            for chunk in pq.read_table(path, columns=["text"]).column("text").cast(pa.large_string()).chunks
        ]
    )


def cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def peak_mib() -> float:
    """Of this process's resident memory, mapped files included. (ru_maxrss would count what its parent had, too.)"""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def main(tool: Tool) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--few", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--least-seconds", type=float, default=0)
    arguments = parser.parse_args()
    _once(tool, tool.prepare(arguments.few), arguments.work)
    prepared = tool.prepare(arguments.input)
    cpu = wall = 0.0
    runs = 0
    while runs == 0 or cpu < arguments.least_seconds:
        run_cpu, run_wall, result = _once(tool, prepared, arguments.work)
        cpu, wall, runs = cpu + run_cpu, wall + run_wall, runs + 1
    peak = peak_mib()
    report = {
        "cpu_seconds": cpu / runs,
        "wall_seconds": wall / runs,
        "runs": runs,
        "peak_mib": peak,
        **tool.found(prepared, result, arguments.work / "out"),
    }
    arguments.report.write_text(json.dumps(report))
    shutil.rmtree(arguments.work)


def _once(tool: Tool, prepared: Any, work: Path) -> tuple[float, float, Any]:
    """CPU-seconds, seconds and result of a run."""
    out, scratch = work / "out", work / "scratch"
    for folder in (out, scratch):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = tool.run(prepared, out, scratch)
    return cpu_seconds() - cpu, time.perf_counter() - wall, result


def kept_ids(out: Path) -> list[str]:
    """Of the documents that a tool wrote."""
    return [
        id for path in sorted(out.rglob("*.parquet")) for id in pq.read_table(path, columns=["id"])["id"].to_pylist()
    ]
