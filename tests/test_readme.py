"""The README says what is there."""

import re
import subprocess
import sys
from pathlib import Path

from stages.recipe import STAGES

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text()


def test_the_stage_table_is_the_pipeline() -> None:
    assert re.findall(r"^\| `python -m stages\.(\w+)`", README, re.MULTILINE) == list(STAGES)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (REPOSITORY / target).exists(), target


def test_the_commands_on_the_store_exist() -> None:
    shown = re.findall(r"^python -m stages (\w+)", README, re.MULTILINE)
    result = subprocess.run(
        [sys.executable, "-m", "stages", "--help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert shown and all(command in result.stdout for command in shown)


def test_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", README):
        name = "bench-%" if target.startswith("bench-") else target
        assert re.search(rf"^{re.escape(name)}:", makefile, re.MULTILINE), target
        if name == "bench-%":
            module = target.removeprefix("bench-").replace("-", "_")
            assert (REPOSITORY / "tests/benchmarks" / f"{module}.py").is_file(), target


def test_results_page_is_written_from_the_recorded_objects() -> None:
    from tests.benchmarks.results import PAGE, load, render

    assert PAGE.read_text() == render(load())
