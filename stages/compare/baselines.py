"""Baselines: evaluations that were promoted under a name, as artifacts of their own.

A baseline holds the evaluation's tables and facts, so it stays whole when the evaluation is removed. Promoting is
recorded: baselines of a name are numbered, the newest is the current one, and the manifest says who promoted it, when,
and what for.
"""

import getpass
import os
import shutil
from pathlib import Path

from data.errors import InputError
from stages import fingerprint, manifest
from stages.base import Facts, describe
from stages.evaluate.tables import DOCUMENTS, ITEMS, MEASURED
from stages.manifest import InputEntry
from stages.store import Artifact, Store

BASELINE = "baseline"
REVISION = 1


def promoted(store: Store, name: str = "") -> list[Artifact]:
    """All baselines, or those of one name, oldest first."""
    found = [artifact for artifact in store.all(BASELINE) if not name or artifact.facts["name"] == name]
    return sorted(found, key=lambda artifact: (artifact.facts["name"], artifact.facts["serial"]))


def current(store: Store, name: str) -> Artifact | None:
    """The newest baseline of a name."""
    found = promoted(store, name)
    return found[-1] if found else None


def promote(store: Store, evaluation: Artifact, name: str, note: str = "") -> Artifact:
    """Make an evaluation the current baseline of a name; one that is so already is returned as it is.

    Raises InputError for an artifact that is no evaluation or that is broken, TryAgain while another process promotes
    under this name.
    """
    if evaluation.stage != "evaluate":
        raise InputError(f"{evaluation.path.name} is of {evaluation.stage}: only an evaluation can be promoted")
    if problems := manifest.verify(evaluation.path, evaluation.manifest):
        raise InputError(
            f"{evaluation.path} is broken and cannot be promoted ({'; '.join(problems)}): remove it and run "
            "`python -m stages.evaluate RECIPE` again"
        )
    with store.lease(BASELINE, fingerprint.key(name=name)):
        newest = current(store, name)
        if newest is not None and newest.manifest.inputs["evaluation"][0].digest == evaluation.digest:
            return newest
        return _publish(store, evaluation, name, 1 if newest is None else newest.facts["serial"] + 1, note)


def _publish(store: Store, evaluation: Artifact, name: str, serial: int, note: str) -> Artifact:
    identity = {"name": name, "serial": serial}
    key = fingerprint.key(stage=BASELINE, revision=REVISION, identity=identity, evaluation=evaluation.digest)
    work = store.work_path(BASELINE, key)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for table in (ITEMS, MEASURED, DOCUMENTS):
        _copy(evaluation.path / table, work / table)
    made = evaluation.manifest
    entry = InputEntry(stage=evaluation.stage, key=evaluation.key, digest=evaluation.digest)
    with store.lease(BASELINE, key) as lease:
        described = describe(
            stage=BASELINE,
            revision=REVISION,
            label=name,
            key=key,
            identity=identity,
            config={**identity, "note": note},
            rounding=made.provenance["rounding"],
            externals=made.externals,
            inputs={"evaluation": (entry,), **made.inputs},
            directory=work,
            result=Facts(
                facts={**identity, "evaluation": evaluation.key, "label": made.label, "of": evaluation.facts},
                measurements=made.measurements,
                measured_files=(MEASURED,),
            ),
            provenance={
                "seconds": 0.0,
                "cpu_seconds": 0.0,
                "promoted_by": _user(),
                "note": note,
                "evaluated": {name: made.provenance[name] for name in ("finished", "host", "machine")},
            },
        )
        return store.publish(work, described, lease)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"  # of a container, say, whose users have no names


def _copy(source: Path, target: Path) -> None:
    """By hard link where the file system has them: an artifact's files never change."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
