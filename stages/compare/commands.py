"""`python -m stages promote` and `python -m stages baselines`."""

import argparse
import re
from typing import Any

from data.errors import InputError
from stages.cli import add_root_argument
from stages.compare.baselines import promote, promoted
from stages.config import LABEL_PATTERN
from stages.store import Store


def add_baseline_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add both; each sets `command`, a function of the parsed arguments."""
    promotion = commands.add_parser(
        "promote", help="make an evaluation the baseline with which later models are compared"
    )
    promotion.add_argument("evaluation", help="key, first digits of it, name or path")
    promotion.add_argument("--name", default="main", help="of the baseline, of which the newest counts (default: main)")
    promotion.add_argument("--note", default="", help="what it is promoted for; kept with it")
    promotion.set_defaults(command=_promote)

    listing = commands.add_parser("baselines", help="the evaluations that were promoted, and which of them count")
    listing.add_argument("name", nargs="?", default="", help="only those of this name")
    listing.set_defaults(command=_list)

    for command in (promotion, listing):
        add_root_argument(command)


def _promote(arguments: argparse.Namespace) -> None:
    if not re.fullmatch(LABEL_PATTERN, arguments.name):
        raise InputError(f"--name {arguments.name!r}: use letters, digits, and _ . - after the first, at most 64")
    store = Store(arguments.root)
    artifact = promote(store, store.lookup(arguments.evaluation), arguments.name, arguments.note)
    print(f"{arguments.name} {artifact.facts['serial']}: evaluation {artifact.facts['evaluation']}, {artifact.path}")


def _list(arguments: argparse.Namespace) -> None:
    found = promoted(Store(arguments.root), arguments.name)
    newest = {artifact.facts["name"]: artifact.key for artifact in found}
    for artifact in found:
        facts, made = artifact.facts, artifact.manifest.provenance
        model = facts["of"]["model"]
        counts = newest[facts["name"]] == artifact.key
        print(
            f"{facts['name']} {facts['serial']}  {'current' if counts else 'earlier'}  {made['finished']}  "
            f"{made['promoted_by']}  {model['stage']} {model['key']}  {made['note']}".rstrip()
        )
