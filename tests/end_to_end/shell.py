"""Stages run as a person runs them: one command, one process."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TINY = REPOSITORY / "deployments" / "recipes" / "tiny.toml"
LIMIT_SECONDS = 300


def run(
    module: str, *arguments: str | Path, absent: tuple[str, ...] = (), cwd: Path = REPOSITORY
) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGUMENTS`, with the packages in `absent` not installed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent / "no_prefect"),
        "ABSENT_PACKAGES": ",".join(absent),
    }
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
