"""The command line of every stage: `python -m stages.NAME RECIPE [--set table.field=value] [--upstream]`.

Exit codes: 0 done, 2 something that the user wrote must change, 75 the same command may succeed later, 1 anything
else, with a traceback.
"""

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from data.errors import InputError
from stages.base import Job, Stage, execute
from stages.console import ConsoleListener, fail
from stages.errors import BAD_INPUT, FAILED, OK, TRY_AGAIN, LeaseHeld, StoreConflict, TryAgain
from stages.journal import Event, LineWriter
from stages.parent import end_after_parent
from stages.resolve import Resolver, nothing_to_do
from stages.store import Artifact, Store

WAIT_SECONDS = 2.0
ATTEMPTS_BETWEEN_LINES = 30
# An import of torch and transformers makes 400,000 objects that stay; looking through them for garbage a thousand times
# takes a sixth of its time.
COLLECT_AFTER_OBJECTS = 50_000


def main(stage: Stage) -> NoReturn:
    """Run one stage from the shell, and leave with its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m stages.{stage.name}", description=sys.modules["__main__"].__doc__)
    add_recipe_arguments(parser)
    add_input_argument(parser)
    parser.add_argument("--upstream", action="store_true", help="first build whatever the stage needs and is not there")
    parser.add_argument("--rebuild", action="store_true", help="run even if the artifact is there, and compare the two")
    parser.add_argument("--wait", action="store_true", help="wait while another process builds the same artifact")
    parser.add_argument(
        "--events", action="store_true", help="print the journal's events on standard output, one JSON object a line"
    )
    parser.add_argument(
        "--outlives-parent",
        type=float,
        metavar="SECONDS",
        help="so long after the process that started this one has ended, end at the latest, whatever it is doing",
    )
    arguments = parser.parse_args()
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "PASSIVE"
    )  # before torch: idle threads sleep and leave the cores to others
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
    if arguments.outlives_parent is not None:
        end_after_parent(arguments.outlives_parent)
    run_and_exit(lambda: _run(stage.name, arguments))


def add_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command on a recipe takes."""
    parser.add_argument("recipe", type=Path, help="recipe file, .toml or .json")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="TABLE.FIELD=VALUE",
        dest="settings",
        help="override one field of the recipe",
    )
    add_root_argument(parser)


def add_input_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=ARTIFACT",
        dest="inputs",
        help="take this artifact (key, name or path) as the input NAME",
    )


def named_inputs(pairs: Sequence[str]) -> dict[str, str]:
    """What a user named as inputs: {input name: artifact}."""
    found = {}
    for pair in pairs:
        name, equals, artifact = pair.partition("=")
        if not equals:
            raise InputError(f"--input {pair!r} is not of the form NAME=ARTIFACT")
        found[name] = artifact
    return found


def add_root_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", type=Path, default=Path(), help="folder that holds artifacts/ and runs/ (default: here)"
    )


def run_and_exit(command: Callable[[], None]) -> NoReturn:
    """Run `command`, explain what went wrong in the user's terms, and leave with the exit code that says which kind
    it was."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        command()
        sys.exit(OK)
    except InputError as error:
        fail(str(error))
        sys.exit(BAD_INPUT)
    except TryAgain as error:
        fail(str(error))
        sys.exit(TRY_AGAIN)
    except StoreConflict as error:
        fail(str(error))
        sys.exit(FAILED)
    except BrokenPipeError:
        sys.exit(FAILED)  # the reader of our output, `head` perhaps, has gone
    except KeyboardInterrupt:
        fail("interrupted; the same command continues")
        sys.exit(128 + signal.SIGINT)


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leave through every `finally`, so that leases are given back and children are brought down."""
    raise SystemExit(128 + number)


def _run(target: str, arguments: argparse.Namespace) -> None:
    from stages.recipe import STAGES, load

    recipe = load(arguments.recipe, arguments.settings)
    store = Store(arguments.root)
    resolver = Resolver(recipe, store, STAGES, chosen_inputs(STAGES[target], arguments.inputs, store))
    upstream = Resolver(recipe, store, STAGES)
    with ExitStack() as stack:
        console = None if arguments.events else stack.enter_context(ConsoleListener())
        # A flow that was killed reads no more; its stage has been told to leave, and still has a checkpoint to take.
        listener = console or event_printer(is_needed=arguments.outlives_parent is None)
        for name in resolver.order(target)[:-1] if arguments.upstream else ():
            for job in upstream.jobs(name):
                _build(job, store, listener, arguments, rebuild=False)
        jobs = resolver.jobs(target)
        if not jobs:
            raise nothing_to_do(target)
        artifacts = [_build(job, store, listener, arguments, rebuild=arguments.rebuild) for job in jobs]
    if not arguments.events:
        for artifact in artifacts:
            print(artifact.path)


def chosen_inputs(stage: Stage, pairs: Sequence[str], store: Store) -> dict[str, Artifact]:
    """The artifacts that a user named as inputs. Raises InputError for a name that the stage does not take."""
    chosen = {}
    for name, artifact in named_inputs(pairs).items():
        if name not in stage.inputs:
            takes = ", ".join(f"{known}=ARTIFACT" for known in stage.inputs)
            raise InputError(f"--input {name}: {stage.name} takes {takes or 'none'}")
        chosen[name] = store.lookup(artifact)
    return chosen


def _build(
    job: Job, store: Store, listener: Callable[[Event], None], arguments: argparse.Namespace, *, rebuild: bool
) -> Artifact:
    hit = store.find(job.stage.name, job.key) is not None and not rebuild
    artifact = _execute(job, store, listener, arguments, rebuild=rebuild)
    _tell(listener, job, "artifact", key=artifact.key, path=str(artifact.path), hit=hit)
    return artifact


def _tell(listener: Callable[[Event], None], job: Job, kind: str, **fields: Any) -> None:
    """What stands in no journal, since it is not of the stage itself."""
    listener({"time": round(time.time(), 3), "stage": job.stage.name, "kind": kind, **fields})


def _execute(
    job: Job, store: Store, listener: Callable[[Event], None], arguments: argparse.Namespace, *, rebuild: bool
) -> Artifact:
    attempt = 0
    while True:
        try:
            return execute(job, store, listeners=(listener,), rebuild=rebuild)
        except LeaseHeld as error:
            if not arguments.wait:
                raise
            if attempt % ATTEMPTS_BETWEEN_LINES == 0:
                _tell(listener, job, "alive" if attempt else "note", text=str(error).partition(";")[0])
            attempt += 1
            time.sleep(WAIT_SECONDS)


def event_printer(*, is_needed: bool = True) -> LineWriter:
    """A listener that has standard output to itself: what a library prints goes to standard error from here on."""
    descriptor = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return LineWriter(descriptor, is_needed=is_needed)
