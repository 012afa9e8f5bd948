"""Write RESULTS.md from the objects that the benchmarks left: `python -m tests.benchmarks.results`."""

import json
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import RESULTS

PAGE = Path(__file__).parent / "RESULTS.md"
OWN_TARGETS = ("chaos", "test-orchestration")  # of the Makefile
OPENING = """# Measured

Each section is the last run of its command as it was recorded; `python -m tests.benchmarks.results` writes this
page from the files in `results/`. Ratios are medians of interleaved pairs with their smallest and largest value.
"""


def render(results: list[dict[str, Any]]) -> str:
    """The text of RESULTS.md."""
    return OPENING + "".join(f"\n{_section(result)}" for result in results)


def load() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def _section(result: dict[str, Any]) -> str:
    name, machine, versions = result["bench"], result["machine"], result["versions"]
    lines = [
        f"## `make {name if name in OWN_TARGETS else f'bench-{name}'}`",
        "",
        f"{result['date']}; {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        + f"{machine['system']}; "
        + ", ".join(f"{package} {version}" for package, version in versions.items()),
        "",
        _row(result["table"]["headers"]),
        _row(["---"] * len(result["table"]["headers"])),
        *(_row(row) for row in result["table"]["rows"]),
        "",
        *(f"* `{figure}`: {_figure(value)}" for figure, value in result["figures"].items()),
    ]
    return "\n".join(lines) + "\n"


def _row(cells: list[Any]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _figure(value: Any) -> str:
    if isinstance(value, dict) and "median" in value:
        return f"{value['median']} ({value['low']} to {value['high']})"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_figure(part)}" for name, part in value.items())
    return str(value)


if __name__ == "__main__":
    PAGE.write_text(render(load()))
    print(PAGE)
