"""Which checkpoint a run goes on from."""

import shutil
from collections.abc import Callable

from stages.journal import Journal
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.job import RunDirectory


def always(step: int) -> bool:
    """Any checkpoint will do."""
    return True


def nowhere(wanted: Callable[[int], bool]) -> int:
    """There is no other place with checkpoints."""
    return 0


def choose(
    run: RunDirectory,
    journal: Journal,
    *,
    wanted: Callable[[int], bool],
    fetch: Callable[[Callable[[int], bool]], int] = nowhere,
) -> int:
    """The newest complete and intact checkpoint for which `wanted` holds; 0 if there is none, to begin anew. Every byte
    of it has just been verified. fetch: see `Keeper.fetch`; asked only if there is none here.

    What a kill left unfinished is deleted, and what is damaged or newer than the one chosen is set aside; the journal
    says so. Of what was ever set aside as damaged, and as unhealthy, only the one of the highest step is kept.
    """
    step = _choose(run, journal, wanted) or fetch(wanted)
    for path in checkpoint.superseded(run.checkpoints):
        shutil.rmtree(path)
        journal.warning(f"{path.name} has been deleted: a newer checkpoint was set aside for the same reason")
    return step


def _choose(run: RunDirectory, journal: Journal, wanted: Callable[[int], bool]) -> int:
    found = checkpoint.scan(run.checkpoints)
    for path in found.unfinished:
        if path.suffix == ".tmp":
            shutil.rmtree(path)
            journal.warning(f"checkpoint {path.name} was not finished and has been deleted")
        else:
            aside = checkpoint.set_aside(path, checkpoint.DAMAGED)
            journal.warning(f"checkpoint {path.name} is incomplete and has been set aside as {aside.name}")
    for step, path in reversed(found.complete.items()):
        if not wanted(step):
            aside = checkpoint.set_aside(path, checkpoint.UNHEALTHY)
            journal.warning(f"checkpoint {path.name} is not healthy and has been set aside as {aside.name}")
            continue
        problems = checkpoint.problems(path)
        if not problems:
            return step
        aside = checkpoint.set_aside(path, checkpoint.DAMAGED)
        journal.warning(
            f"checkpoint {path.name} is damaged ({'; '.join(problems)}) and has been set aside as {aside.name}"
        )
    return 0
