"""What is the same around every tool: which text it gets, what of its CPU time counts, and what it wrote.

    python -m tests.benchmarks.peers.NAME --vocabulary FOLDER --text FOLDER --work FOLDER --report FILE.json

Counted is the part from opening the JSONL files to the finished output, in CPU-seconds of the process and its children,
user and system: imports and the loading of the vocabulary come before it. With --few the tool first runs twice on a few
documents. The first run takes what is paid once, such as imports on first use; what the second still costs, such as the
start of a worker process, is paid again by every run and is taken off. `gross_cpu_seconds` is the whole process up to
the end of the first text, without these two runs but with what they took in advance.
"""

import argparse
import hashlib
import json
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Tool(Protocol):
    """A tokenizer of JSONL files, ready to work."""

    def encode(self, files: list[Path], out: Path, scratch: Path) -> None:
        """Write the tokens of all documents, in order, with an end token after each, into the empty folder `out`."""

    def tokens(self, out: Path) -> np.ndarray:
        """All tokens that `encode` wrote, in the order of the documents."""


def cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main(make: Callable[[Path, int], Tool]) -> None:
    """make: the tool, from the folder of tokenizer.model and tokenizer.json and the id of the end token."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--end-id", type=int, required=True)
    parser.add_argument("--few", type=Path)
    parser.add_argument("--text", type=Path, action="append", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    arguments = parser.parse_args()
    tool = make(arguments.vocabulary, arguments.end_id)
    ready = cpu_seconds()
    once = again = 0.0
    if arguments.few:
        once, again = (_run(tool, arguments.few, arguments.work, arguments.end_id)["cpu_seconds"] for _ in range(2))
    texts = [_run(tool, folder, arguments.work, arguments.end_id) for folder in arguments.text]
    gross = ready + once - again + texts[0]["cpu_seconds"]
    for text in texts:
        text["cpu_seconds"] -= again
    arguments.report.write_text(json.dumps({"gross_cpu_seconds": gross, "texts": texts}))


def _run(tool: Tool, text: Path, work: Path, end_id: int) -> dict[str, Any]:
    """One text, and what its output holds; the reading back is not counted."""
    out, scratch = work / "out", work / "scratch"
    for folder in (out, scratch):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    cpu, wall = cpu_seconds(), time.perf_counter()
    tool.encode(sorted(text.glob("*.jsonl")), out, scratch)
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    tokens = tool.tokens(out)
    found = {
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "tokens": len(tokens),
        "ends": int((tokens == end_id).sum()),
        "digest": hashlib.sha256(tokens.astype(np.uint32).tobytes()).hexdigest(),
        "bytes": sum(path.stat().st_size for path in out.rglob("*") if path.is_file()),
    }
    shutil.rmtree(work)
    return found
