"""How every figure of the project is measured and shown.

Two commands are compared in interleaved pairs (A B A B ...) after a warm-up, since on a shared machine only the
median of paired ratios, with its spread, means anything. A benchmark prints a table for people and, as its last line,
one JSON object: {"bench": NAME, "figures": {...}, "machine": {...}, "versions": {...}}. The same object goes to
results/NAME.json, from which `python -m tests.benchmarks.results` writes RESULTS.md.
"""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
MINIMUM_PAIRS = 5


@dataclass(frozen=True)
class Cost:
    """What one run of a command took."""

    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Paired:
    """Costs of A and B, run by turns."""

    a: tuple[Cost, ...]
    b: tuple[Cost, ...]

    def ratio(self, field: str) -> dict[str, float]:
        """Median of b ÷ a over the pairs, with the smallest and the largest."""
        ratios = [getattr(b, field) / getattr(a, field) for a, b in zip(self.a, self.b, strict=True)]
        return {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}

    def difference(self, field: str) -> dict[str, float]:
        """Median of b - a over the pairs, with the smallest and the largest."""
        found = [getattr(b, field) - getattr(a, field) for a, b in zip(self.a, self.b, strict=True)]
        return {"median": statistics.median(found), "low": min(found), "high": max(found)}


def measure(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Cost:
    """Run `command` to its end. Its output is shown only if it fails, which is an error."""
    before, started = os.times(), time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    wall, after = time.perf_counter() - started, os.times()
    if result.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)} ended with {result.returncode}:\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
        )
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(wall, cpu)


def interleave(a: Callable[[], Cost], b: Callable[[], Cost], *, pairs: int, warm_up: bool = True) -> Paired:
    """Costs of `a` and `b`, run by turns; the warm-up is not counted."""
    assert pairs >= MINIMUM_PAIRS, f"a benchmark takes at least {MINIMUM_PAIRS} pairs"
    if warm_up:
        a(), b()
    costs = [(a(), b()) for _ in range(pairs)]
    return Paired(tuple(pair[0] for pair in costs), tuple(pair[1] for pair in costs))


def machine() -> dict[str, Any]:
    """What the figures were measured on, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.system(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def report(
    name: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[Any]],
    figures: Mapping[str, Any],
    packages: Sequence[str],
    *,
    keep: bool = True,
) -> None:
    """Print the table and the closing JSON line, and keep the object for RESULTS.md."""
    cells = [[_rounded(cell) for cell in row] for row in rows]
    result = {
        "bench": name,
        "figures": {key: _rounded(value) for key, value in figures.items()},
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            **{package: metadata.version(package) for package in packages},
        },
        "table": {"headers": list(headers), "rows": cells},
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print_table(headers, cells)
    print(json.dumps({key: result[key] for key in ("bench", "figures", "machine", "versions")}))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """In columns as wide as they have to be."""
    lines = [headers, *rows]
    widths = [max(len(str(line[i])) for line in lines) for i in range(len(headers))]
    for line in lines:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return value
