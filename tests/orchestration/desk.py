"""A desk for trials: the real one, by its own command, with a home, a root and a port of its own and short times.

    with Desk(folder, regression_cron="* * * * *") as desk:     # fields of desk.toml over SHORT
        desk.up()
        run = desk.api.start("stage/pretrain", {"recipe": desk.recipe(), "root": str(desk.root)})
        desk.api.wait(run, seconds=300)

Whatever happens in the block, no process of the desk or of its runs outlives it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from stages.recipe import load
from tests.orchestration import families
from tests.orchestration.api import Api, wait_for
from tests.services.process import free_port

REPOSITORY = Path(__file__).parents[2]
TINY = REPOSITORY / "deployments" / "recipes" / "tiny.toml"
MARK = "LONGHAUL_TRIAL"  # in the environment of every process of a desk
COMMAND_SECONDS = 600.0
ENDS_SECONDS = 10.0
SHORT: Mapping[str, Any] = {
    "heartbeat_seconds": 30,  # Prefect takes no less
    "crashed_after_seconds": 60,
    "worker_poll_seconds": 2,
    "recipes": ["deployments/recipes/tiny.toml"],
}


class Desk:
    """`folder` holds all of it. `settings`: fields of desk.toml; `variables`: for the environment of all processes."""

    def __init__(self, folder: Path, *, variables: Mapping[str, str] | None = None, **settings: Any) -> None:
        self.folder = folder
        self.home, self.root = folder / "prefect", folder / "root"
        for path in (self.home, self.root):
            path.mkdir(parents=True, exist_ok=True)
        self.settings = {"port": free_port(), "root": str(self.root), **SHORT, **settings}
        self.settings_path = folder / "desk.json"
        self.write_settings()
        self._variables = dict(variables or {})

    def __enter__(self) -> "Desk":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def url(self) -> str:
        """Of the UI."""
        return f"http://127.0.0.1:{self.settings['port']}"

    @cached_property
    def api(self) -> Api:
        return Api(f"{self.url}/api")

    def write_settings(self, **settings: Any) -> None:
        """Change fields of desk.toml; the next `up` sees them."""
        self.settings |= settings
        self.settings_path.write_text(json.dumps(self.settings, indent=1))

    def environment(self) -> dict[str, str]:
        """That of a user's shell in which nothing of Prefect is set but its home."""
        shell = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        own = {"PREFECT_HOME": str(self.home), MARK: str(self.folder), "OMP_NUM_THREADS": "1"}
        return {**shell, "OMP_WAIT_POLICY": "PASSIVE", **own, **self._variables}

    def start(self, *arguments: str, output: Path | None = None) -> subprocess.Popen[bytes]:
        """`python -m ARGUMENTS` in the desk's environment, in the background, as a command in a terminal of its own."""
        with open(output or self.folder / "output.txt", "ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=REPOSITORY,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                # What runs in the background ignores Ctrl-C, and what it starts would do so too.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def command(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """`python -m flows.desk ARGUMENTS --settings …` to its end."""
        # Into files: a detached process that kept a pipe open would hold up the end of the command.
        places = [self.folder / name for name in ("stdout.txt", "stderr.txt")]
        line = [sys.executable, "-m", "flows.desk", *arguments, "--settings", str(self.settings_path)]
        with open(places[0], "w") as output, open(places[1], "w") as errors:
            code = subprocess.run(
                line,
                cwd=REPOSITORY,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                timeout=seconds,
                start_new_session=True,
            ).returncode
        said, complained = [place.read_text() for place in places]
        return subprocess.CompletedProcess(line, code, said, complained)

    def up(self) -> str:
        """Start what is not there, as `make ui` does; what the command said."""
        return self._succeed("up")

    def down(self) -> str:
        """As `make ui-stop` does; what the command said."""
        return self._succeed("down")

    def _succeed(self, *arguments: str) -> str:
        result = self.command(*arguments)
        if result.returncode:
            raise RuntimeError(f"desk {arguments}: {result.returncode}\n{result.stdout}\n{result.stderr[-4000:]}")
        return result.stdout

    def processes(self) -> list[psutil.Process]:
        """Every living process of the desk and of its runs."""
        return families.marked(MARK, str(self.folder))

    def keepers(self) -> list[psutil.Process]:
        return families.whose(self.processes(), "-m flows.desk run")

    def servers(self) -> list[psutil.Process]:
        return families.whose(self.processes(), "uvicorn")

    def workers(self) -> list[psutil.Process]:
        return families.whose(self.processes(), "worker", "start")

    def watches(self) -> list[psutil.Process]:
        return families.whose(self.processes(), "-m flows.desk watch")

    def recipe(self, *settings: str) -> dict[str, Any]:
        """The tables of the tiny recipe, with `table.field=value` settings over them."""
        return load(TINY, settings).tables()

    def end(self) -> list[str]:
        """End every process of the desk that is still there; their command lines."""
        left: list[str] = []
        while found := self.processes():  # a keeper may just have started another one
            left += [families.command(process) for process in found]
            families.send(found, signal.SIGKILL)
            if stuck := families.gone(found, ENDS_SECONDS):
                raise RuntimeError(f"cannot be ended: {stuck}")
        return left

    def wait_until_empty(self, seconds: float) -> list[str]:
        """Command lines of what is still there after so long, or none as soon as none is."""
        try:
            wait_for(lambda: not self.processes(), seconds, "")
        except TimeoutError:
            return [families.command(process) for process in self.processes()]
        return []
