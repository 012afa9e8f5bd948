"""What a user asks of the desk in a terminal: that it be up, that it be down, how it is."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from data.errors import InputError
from flows.desk.processes.keeper import LEAVE, require_free_port
from flows.desk.processes.parts import PART_VARIABLE, has_variables, keeper_variables, part_played
from flows.desk.processes.process import Process, of_desk, python, reap, start, wait_until
from flows.desk.processes.restarts import START_SECONDS
from flows.desk.processes.state import keeper_of, keeping, make_home, read_state, write_state
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
    """Start what is not running, provision it where its services run, and say where it is. `options` hand the settings
    on to a keeper. Raises InputError, and TryAgain if the server does not begin to serve; what ran before goes on
    then."""
    home, variables = desk_home(), keeper_variables(settings)
    keeper, is_new = keeper_of(home), not of_desk(home)
    if "server" in settings.parts:
        require_free_port(settings, home)
    if keeper and not has_variables(keeper, variables):
        _dismiss(keeper, home)
        say("settings or code have changed: what they concern is started again")
        keeper = None
    if keeper is None:
        keeper = _start_keeper(settings, options, home, variables)
        say(f"starting; logs are in {home}")
    try:
        if "services" in settings.parts:
            provision(settings, say, before=lambda: _wait_until_healthy(settings, keeper, home, is_new))
        elif "server" in settings.parts:
            _wait_until_healthy(settings, keeper, home, is_new)
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
    make_home(home)
    with suppress(OSError):
        write_state(home, address(settings), {}, {})  # how often something ended under another keeper says nothing
    environment = {**os.environ, **variables, IN_BACKGROUND: "1"}
    return start(python("flows.desk", "run", *options), environment, home / "keeper.log")


def _wait_until_healthy(settings: DeskSettings, keeper: Process, home: Path, is_new: bool) -> None:
    """Raises TryAgain if the server does not come. A desk that `is_new` is then ended; another keeps what it has, flow
    runs among it, and goes on trying."""

    def ended() -> bool:
        reap()
        return not keeper.alive

    def given_up() -> bool:
        return read_state(home).get("failures", {}).get("server", 0) >= MOST_FAILURES

    def serves() -> bool:
        """The one that this keeper keeps, and not one that it has still to replace."""
        kept = keeper_of(home) == keeper and "server" in read_state(home).get("processes", {})
        return kept and is_healthy(api_url(settings))

    wait_until(lambda: ended() or given_up() or serves(), START_SECONDS)
    if serves():
        return
    log = home / ("keeper.log" if ended() else "server.log")
    if is_new:
        keeper.signal(signal.SIGTERM)
        wait_until(ended, STOP_SECONDS)
    more = "" if is_new or ended() else "; the keeper goes on trying, and what else runs goes on"
    raise TryAgain(
        f"the server did not start{more}; the end of {log}:\n{last_bytes(log, TAIL_BYTES).decode(errors='replace')}"
    )


def provision(settings: DeskSettings, say: Say, before: Callable[[], None] = lambda: None) -> None:
    """Bring deployments, automations, limits and blocks up to date, after `before`. Raises InputError, and TryAgain if
    there is no server."""
    os.environ.update(client_environment(settings))
    from httpx import TransportError

    from flows.desk.objects.provision import provision as provide  # Prefect: seconds, in which the server starts

    before()
    try:
        changed = asyncio.run(provide(settings))
    except TransportError as error:
        raise TryAgain(f"the server at {address(settings)} does not answer ({type(error).__name__})") from None
    for line in changed:
        say(line)


def down(say: Say) -> None:
    """Stop the desk."""
    home = desk_home()
    keeper = keeper_of(home) or _unnamed_keeper(home)
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


def _unnamed_keeper(home: Path) -> Process | None:
    """One that had no room on the disk to write down who it is."""
    return next((process for process in of_desk(home) if process.environment.get(PART_VARIABLE) == "keeper"), None)


def status(say: Say) -> int:
    """Say what runs; the exit code."""
    home, state = desk_home(), read_state(desk_home())
    keeper = keeper_of(home)
    if keeper is None:
        say(f"no desk is running in {home}" + ("; but parts of it are" if of_desk(home) else ""))
        return FAILED
    site = state.get("address", "")
    say(f"address {site or 'not known yet'}")
    say(f"keeper  process {keeper.pid}")
    found = {part_played(process): process for process in of_desk(home)}
    for name in state.get("failures", {}):
        say(f"{name:7} " + (f"process {found[name].pid}" if name in found else "does not run"))
    healthy = bool(site) and is_healthy(f"{site}/api")
    say(f"serves  {'yes' if healthy else 'no'}")
    return OK if healthy else FAILED
