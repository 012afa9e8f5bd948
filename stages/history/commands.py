"""`python -m stages history`."""

import argparse
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages.cli import add_root_argument
from stages.out_file import check_place, whole
from stages.store import Store


def add_history_command(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add it; it sets `command`, a function of the parsed arguments."""
    history = commands.add_parser("history", help="every evaluation, baseline, regression and alert on one page")
    history.add_argument("--out", type=Path, default=Path("history.html"), help="the page (default: history.html)")
    history.set_defaults(command=_history)
    add_root_argument(history)


def _history(arguments: argparse.Namespace) -> None:
    from stages.history.page import render

    check_place(arguments.out)
    store = Store(arguments.root)
    if next(store.all("evaluate"), None) is None:
        raise InputError(f"there is no evaluation in {store.artifacts_path}: run `python -m stages.evaluate RECIPE`")
    page = render(store)
    with whole(arguments.out) as path:
        path.write_text(page, encoding="utf-8")
    print(arguments.out)
