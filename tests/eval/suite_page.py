"""Write the tables of docs/suites.md from the suites: `python -m tests.eval.suite_page`."""

from pathlib import Path

from eval.suites import SUITES_DIRECTORY, Suite, load_suites

PAGE = Path(__file__).parents[2] / "docs" / "suites.md"
MARK = "<!-- The tables are written by `python -m tests.eval.suite_page`. -->\n"
FIRST = "core", "regression", "long_tail", "efficiency", "safety", "standard"


def shipped() -> tuple[Suite, ...]:
    """Every suite in the folder, in the order of the page."""
    names = [path.stem for path in SUITES_DIRECTORY.glob("*.toml")]
    return load_suites(sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)))


def tables() -> str:
    """A section for each suite."""
    return "".join(
        f"\n### {suite.name}, version {suite.version}: {_axis(suite)}\n\n{_table(suite)}" for suite in shipped()
    )


def _axis(suite: Suite) -> str:
    return suite.axis.replace("_", " ")


def _table(suite: Suite) -> str:
    lines = ["| task | what it asks | metric | items | chance | version | moves at |", "|---|---|---|---|---|---|---|"]
    for task in suite.tasks:
        chance = "" if task.chance is None else f"{task.chance:g}"
        cells = (task.name, task.description, task.metric, str(task.limit), chance, str(task.version), task.moves_at)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The page with its tables as they should be."""
    prose, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has lost its mark"
    return prose + mark + tables()


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
    print(PAGE)
