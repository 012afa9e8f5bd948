"""Stages run as a person runs them: one command."""

import gc
import io
import os
import runpy
import signal
import subprocess
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

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


def run_here(module: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGUMENTS` in this process: for what is said and left, where a start of Python would be most
    of the work. Raises what the command does not explain, where a shell would see a traceback."""
    handler, threshold = signal.getsignal(signal.SIGTERM), gc.get_threshold()
    output, errors, code = io.StringIO(), io.StringIO(), 0
    command = [module, *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(sys, "argv", command)
        patch.setenv("OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY", "PASSIVE"))
        warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)
        try:
            with chdir(REPOSITORY), redirect_stdout(output), redirect_stderr(errors):
                runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            signal.signal(signal.SIGTERM, handler)
            gc.set_threshold(*threshold)
    return subprocess.CompletedProcess(command, code, output.getvalue(), errors.getvalue())
