"""The README says what is there."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from flows.desk.settings import DeskSettings
from stages.pretrain.config import PretrainConfig
from stages.recipe import STAGES, Recipe, load

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text()
MOST_PICTURE_BYTES = 1_500_000  # of all pictures of the desk together


def test_the_stage_table_is_the_pipeline() -> None:
    assert re.findall(r"^\| `python -m stages\.(\w+)`", README, re.MULTILINE) == list(STAGES)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (REPOSITORY / target).exists(), target


def test_links_of_the_other_pages_lead_somewhere() -> None:
    for page in (REPOSITORY / "docs").glob("*.md"):
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_settings_that_the_page_on_survival_lists_have_these_defaults() -> None:
    page = (REPOSITORY / "docs/survival.md").read_text()
    table = page[page.index("## Settings") : page.index("## More or fewer")]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE)
    words = {"true": True, "false": None, "automatic": None, "none": None, "none: all or nothing": None}
    for names, defaults in rows:
        settings, values = re.findall(r"`(\w+)`", names), defaults.split(", ")
        for name, value in zip(settings, values, strict=True):
            default = PretrainConfig.model_fields[name].default
            assert (default or None) == words.get(value, value) or str(default) in (value, f"{value}.0"), name
    assert len(rows) >= 9


def test_the_commands_on_the_store_exist() -> None:
    shown = re.findall(r"^python -m stages (\w+)", README, re.MULTILINE)
    result = subprocess.run(
        [sys.executable, "-m", "stages", "--help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert shown and all(command in result.stdout for command in shown)


def test_tables_of_recipes_are_valid(tmp_path: Path) -> None:
    """As they stand there, with a name; whether their files are there is not asked."""
    shown = re.findall(r"^```toml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    for number, table in enumerate(shown):
        path = tmp_path / f"{number}.toml"
        path.write_text(f'name = "shown"\n{table}')
        assert set(tomllib.loads(table)) <= set(load(path).model_dump())
    assert shown


def test_modules_that_commands_run_exist() -> None:
    for module in set(re.findall(r"python -m ([\w.]+)", README)):
        assert importlib.util.find_spec(module), module


def test_what_the_page_on_evaluation_shows_can_be_run(tmp_path: Path) -> None:
    """Its commands are there with the options that it gives them, its tables are valid, its fields exist."""
    page = (REPOSITORY / "docs/evaluation.md").read_text()
    lines = re.findall(r"^python -m (\S+) ?([^#\n]*)", page, re.MULTILINE)
    told: dict[tuple[str, ...], str] = {}
    for module, words in lines:
        options, names = re.findall(r"--[a-z-]+", words), re.findall(r"^[a-z]+\b", words)
        for command, expected in (((module,), names), ((module, *names), options)):
            if expected and command not in told:
                asked = [sys.executable, "-m", *command, "--help"]
                told[command] = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
            assert all(word in told[command] for word in expected), (module, words)
        assert importlib.util.find_spec(module), module
    assert len(told) >= 5
    recipe = load(_written(tmp_path, re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)))
    for table, field in re.findall(r"`(adopt|evaluate|compare|alerts|pretrain|suites)\.(?!jsonl)(\w+)", page):
        assert field in type(getattr(recipe, table)).model_fields, f"{table}.{field}"


def test_what_the_page_on_the_desk_shows_is_there() -> None:
    """Its tables are valid settings, its commands, fields and deployments exist, its pictures are small."""
    page = (REPOSITORY / "docs/desk.md").read_text()
    tables = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for table in tables:
        DeskSettings.model_validate(tomllib.loads(table))
    told = subprocess.run(
        [sys.executable, "-m", "flows.desk", "--help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    commands = {*re.findall(r"python -m flows\.desk (\w+)", page), *re.findall(r"`flows\.desk (\w+)`", page)}
    assert len(commands) >= 3 and all(command in told for command in commands)
    for table, field in re.findall(r"`(run|pretrain)\.(\w+)`", page):
        assert field in Recipe.model_fields[table].annotation.model_fields, f"{table}.{field}"  # type: ignore[union-attr]
    deployed = (REPOSITORY / "deployments/prefect.yaml").read_text()
    for name in re.findall(r"`(?:stage|evaluate-checkpoint|regression)/([\w-]+)`", page):
        assert f"name: {name}\n" in deployed, name
    pictures = list((REPOSITORY / "docs/desk").glob("*.png"))
    assert len(tables) >= 3 and pictures
    assert sum(picture.stat().st_size for picture in pictures) < MOST_PICTURE_BYTES
    assert all(picture.name in page or f"docs/desk/{picture.name}" in README for picture in pictures)


def _written(folder: Path, tables: list[str]) -> Path:
    path = folder / "shown.toml"
    path.write_text('name = "shown"\n' + "\n".join(tables))
    return path


def test_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    pages = (README, *((REPOSITORY / "docs" / name).read_text() for name in ("evaluation.md", "desk.md")))
    for target in (target for page in pages for target in re.findall(r"\bmake ([a-z-]+)", page)):
        name = "bench-%" if target.startswith("bench-") else target
        assert re.search(rf"^{re.escape(name)}:", makefile, re.MULTILINE), target
        if name == "bench-%":
            module = target.removeprefix("bench-").replace("-", "_")
            assert (REPOSITORY / "tests/benchmarks" / f"{module}.py").is_file(), target


def test_results_page_is_written_from_the_recorded_objects() -> None:
    from tests.benchmarks.results import PAGE, load, render

    assert PAGE.read_text() == render(load())
