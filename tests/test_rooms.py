"""Who may import whom, walked over the source; and stages that run where Prefect and lm-eval are not installed."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("data", "eval", "stages", "flows", "deployments")
MAY_IMPORT = {
    "data": set(),
    "eval": {"data"},
    "stages": {"data", "eval"},
    "flows": {"stages", "eval.charts", "data.errors"},
    "deployments": {"flows", "stages", "data.errors"},
}
HEAVY = ("torch", "transformers", "lm_eval", "datasets", "matplotlib", "prefect", "scipy")
LIGHT_MODULES = (
    "stages.recipe",
    "stages.cli",
    "stages.resolve",
    "data.reading.documents",
    "data.order.batches",
    "data.shards.files",
    "stages.plan",
)


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    allowed = MAY_IMPORT[room] | {room}
    for path in sources(room):
        for module in imported(path):
            if module.partition(".")[0] in ROOMS:
                assert any(module == name or module.startswith(f"{name}.") for name in allowed), (
                    f"{path} imports {module}"
                )


@pytest.mark.parametrize("room", ["data", "eval", "stages"])
def test_prefect_lives_in_flows_and_deployments_only(room: str) -> None:
    for path in sources(room):
        assert not any(module.partition(".")[0] == "prefect" for module in imported(path)), path


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_is_imported_whole_and_nobody_touches_the_path(room: str) -> None:
    for path in sources(room):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & {"data", "eval"}, f"{path}: import data/eval whole"
        assert "sys.path" not in path.read_text(encoding="utf-8"), path


def test_nothing_unpickles_and_no_remote_code() -> None:
    for room in ROOMS:
        for path in sources(room):
            text = path.read_text(encoding="utf-8")
            for forbidden in ("pickle.load", "yaml.load(", "trust_remote_code=True", "weights_only=False"):
                assert forbidden not in text, f"{path}: {forbidden}"


def test_the_light_modules_import_nothing_heavy() -> None:
    code = f"import sys, {', '.join(LIGHT_MODULES)}; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed here")
sys.meta_path.insert(0, Absent())
import runpy
sys.argv = ["stages.{stage}", "--help"]
runpy.run_module("stages.{stage}", run_name="__main__", alter_sys=True)
"""
STAGES = (
    *("curate", "tokenizer", "pretokenize", "plan", "preflight", "pretrain", "adopt"),
    *("evaluate", "compare", "export", "report"),
)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_starts_without_prefect(stage: str) -> None:
    code = BLOCKED.format(blocked=("prefect", "lm_eval"), stage=stage)
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--upstream" in result.stdout
