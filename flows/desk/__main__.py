"""`python -m flows.desk COMMAND`: the server with its UI, the worker that runs what is asked for there, and the watch
over both.

up         start what is not running, bring deployments and automations up to date, print the address
down       stop all of it; flow runs take their last checkpoint, and continue with the next `up`
run        as `up`, in the foreground until Ctrl-C or SIGTERM: for systemd and containers
status     what runs
doctor     what is missing or wrong, and what to do about it
provision  bring deployments, automations, limits and blocks up to date
watch      look after the flow runs; `up` and `run` start it
"""

import argparse
import os
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from flows.desk.processes import commands
from flows.desk.processes.keeper import keep_desk
from flows.desk.processes.parts import SETTINGS_VARIABLE, keeper_variables
from flows.desk.settings import SETTINGS, DeskSettings, client_environment, load_settings
from stages.cli import run_and_exit


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m flows.desk", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (up, down, run, status, doctor, provision, watch):
        added = subparsers.add_parser(command.__name__, help=command.__doc__, description=command.__doc__)
        added.add_argument("--settings", type=Path, metavar="PATH", help=f"the desk's file (default: {SETTINGS})")
        added.add_argument(
            "--set", action="append", default=[], metavar="FIELD=VALUE", dest="sets", help="override one of its fields"
        )
        added.set_defaults(command=command)
    arguments = parser.parse_args()
    run_and_exit(lambda: arguments.command(arguments))


def up(arguments: argparse.Namespace) -> None:
    """Start what is not running, bring deployments and automations up to date, print the address."""
    commands.up(settings_of(arguments), _options(arguments), print)


def down(arguments: argparse.Namespace) -> None:
    """Stop all of it; flow runs take their last checkpoint, and continue with the next `up`."""
    commands.down(print)


def run(arguments: argparse.Namespace) -> None:
    """As `up`, in the foreground until Ctrl-C or SIGTERM: for systemd and containers."""
    settings = settings_of(arguments)
    variables = keeper_variables(settings)
    if not variables.items() <= os.environ.items():
        # Anew with the variables that tell others what this process keeps.
        os.execve(sys.executable, [sys.executable, "-m", "flows.desk", *sys.argv[1:]], {**os.environ, **variables})
    keep_desk(settings, _stamped, provision=commands.IN_BACKGROUND not in os.environ)


def status(arguments: argparse.Namespace) -> None:
    """What runs."""
    sys.exit(commands.status(print))


def doctor(arguments: argparse.Namespace) -> None:
    """What is missing or wrong, and what to do about it."""
    from flows.desk.doctor.doctor import examine

    sys.exit(examine(lambda: settings_of(arguments), print))


def provision(arguments: argparse.Namespace) -> None:
    """Bring deployments, automations, limits and blocks up to date."""
    commands.provision(settings_of(arguments), print)


def watch(arguments: argparse.Namespace) -> None:
    """Look after the flow runs; `up` and `run` start it."""
    settings = settings_of(arguments)
    os.environ.update(client_environment(settings))
    from flows.desk.watch.watch import main as look

    look(settings)


def settings_of(arguments: argparse.Namespace) -> DeskSettings:
    """From the file; for a process of the desk from whoever has started it, so that all have the same."""
    given = os.environ.get(SETTINGS_VARIABLE)
    if given and arguments.settings is None and not arguments.sets:
        return DeskSettings.model_validate_json(given)
    return load_settings(arguments.settings or SETTINGS, arguments.sets)


def _options(arguments: argparse.Namespace) -> list[str]:
    path = (arguments.settings or SETTINGS).absolute()
    return ["--settings", str(path), *(word for setting in arguments.sets for word in ("--set", setting))]


def _stamped(text: str) -> None:
    with suppress(OSError):  # no room for a log is no reason to end
        print(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
