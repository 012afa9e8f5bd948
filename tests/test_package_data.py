"""Every file that the packages read is installed with them."""

import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
ROOMS = ("data", "deployments", "eval", "flows", "stages")


def test_every_file_beside_the_code_is_package_data() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    shipped = {
        path.relative_to(REPOSITORY).as_posix()
        for package, patterns in project["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
        for path in (REPOSITORY / package.replace(".", "/")).glob(pattern)
    }
    present = {
        path.relative_to(REPOSITORY).as_posix()
        for room in ROOMS
        for path in (REPOSITORY / room).rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert present and present == shipped
