"""What a user asks of the desk in a terminal: that it be up, that it be down, how it is."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from data.errors import InputError
from flows.desk.processes import machine
from flows.desk.processes.keeper import START_SECONDS
from flows.desk.processes.keeping import LEAVE, require_free_port
from flows.desk.processes.machine import Process, of_desk, wait_until
from flows.desk.processes.parts import has_variables, keeper_variables, part_played
from flows.desk.processes.state import keeper_of, keeping, read_state
from flows.desk.processes.stopping import FLOW_SECONDS, PART_SECONDS, stop_desk
from flows.desk.settings import DeskSettings, address, api_url, client_environment, desk_home
from flows.serving import is_healthy
from stages.errors import FAILED, OK, TryAgain
from stages.files import last_bytes

IN_BACKGROUND = "LONGHAUL_DESK_IN_BACKGROUND"
STOP_SECONDS = FLOW_SECONDS + 5 * PART_SECONDS
MOST_FAILURES = 3
TAIL_BYTES = 3000

Say = Callable[[str], None]


def up(settings: DeskSettings, options: Sequence[str], say: Say) -> None:
    """Start what is not running, provision it, and say where it is. `options` hand the settings on to a keeper. Raises
    InputError, and TryAgain if the server does not begin to serve."""
    home, variables = desk_home(), keeper_variables(settings)
    keeper = keeper_of(home)
    if keeper and not has_variables(keeper, variables):
        _dismiss(keeper, home)
        say("settings or code have changed: what they concern is started again")
        keeper = None
    if keeper is None:
        keeper = _start_keeper(settings, options, home, variables)
        say(f"starting; logs are in {home}")
    try:
        if "server" in settings.parts:
            provision(settings, say, before=lambda: _wait_until_healthy(settings, keeper, home))
    except InputError:
        say(f"the desk is at {address(settings)}, and something of it needs a change:")
        raise
    say(f"the desk is at {address(settings)}; `python -m flows.desk down` stops it")


def _dismiss(keeper: Process, home: Path) -> None:
    """Make a keeper leave what it keeps to the next one."""
    if IN_BACKGROUND not in keeper.environment:
        raise InputError(
            f"the desk is kept by process {keeper.pid} in the foreground, with other settings: stop it there first, "
            "or with `python -m flows.desk down`"
        )
    keeper.signal(LEAVE)
    if not wait_until(lambda: not keeper.alive, PART_SECONDS):
        keeper.signal(signal.SIGKILL)
        wait_until(lambda: not keeper.alive, PART_SECONDS)


def _start_keeper(settings: DeskSettings, options: Sequence[str], home: Path, variables: dict[str, str]) -> Process:
    home.mkdir(parents=True, exist_ok=True)
    if "server" in settings.parts and not any(part_played(process) == "server" for process in of_desk(home)):
        require_free_port(settings)
    environment = {**os.environ, **variables, IN_BACKGROUND: "1"}
    return machine.start(machine.python("flows.desk", "run", *options), environment, home / "keeper.log")


def _wait_until_healthy(settings: DeskSettings, keeper: Process, home: Path) -> None:
    def ended() -> bool:
        machine.reap()
        return not keeper.alive

    def given_up() -> bool:
        return read_state(home).get("failures", {}).get("server", 0) >= MOST_FAILURES

    def serves() -> bool:
        return is_healthy(api_url(settings)) and keeper_of(home) == keeper and _server_of(home) is not None

    wait_until(lambda: ended() or given_up() or serves(), START_SECONDS)
    if serves():
        return
    log = home / ("keeper.log" if ended() else "server.log")
    keeper.signal(signal.SIGTERM)
    wait_until(ended, STOP_SECONDS)
    raise TryAgain(
        f"the server did not start; the end of {log}:\n{last_bytes(log, TAIL_BYTES).decode(errors='replace')}"
    )


def _server_of(home: Path) -> Process | None:
    return next((process for process in of_desk(home) if part_played(process) == "server"), None)


def provision(settings: DeskSettings, say: Say, before: Callable[[], None] = lambda: None) -> None:
    """Bring deployments, automations, limits and blocks up to date, after `before`. Raises InputError."""
    os.environ.update(client_environment(settings))
    from flows.desk.objects.provision import provision as provide  # Prefect: seconds, in which the server starts

    before()
    for line in asyncio.run(provide(settings)):
        say(line)


def down(say: Say) -> None:
    """Stop the desk."""
    home = desk_home()
    keeper = keeper_of(home)
    if keeper:
        keeper.signal(signal.SIGTERM)
        if not wait_until(lambda: not keeper.alive, STOP_SECONDS):
            keeper.signal(signal.SIGKILL)
            wait_until(lambda: not keeper.alive, PART_SECONDS)
    left = of_desk(home)
    if left:  # by a keeper that was killed
        with keeping(home):
            stop_desk(home, say)
    say("the desk is stopped" if keeper or left else f"no desk is running in {home}")


def status(say: Say) -> int:
    """Say what runs; the exit code."""
    home, state = desk_home(), read_state(desk_home())
    keeper = keeper_of(home)
    if keeper is None:
        say(f"no desk is running in {home}" + ("; but parts of it are" if of_desk(home) else ""))
        return FAILED
    say(f"address {state.get('address')}")
    say(f"keeper  process {keeper.pid}")
    found = {part_played(process): process for process in of_desk(home)}
    for name in state.get("failures", {}):
        say(f"{name:7} " + (f"process {found[name].pid}" if name in found else "does not run"))
    healthy = is_healthy(f"{state.get('address')}/api")
    say(f"serves  {'yes' if healthy else 'no'}")
    return OK if healthy else FAILED
