"""The contract of a stage, and `execute`, which carries a stage from its resolved inputs to a published artifact.

A stage is a plain function into an empty directory, declared by one value:

    STAGE = Stage(name="pretokenize", revision=1, config=PretokenizeConfig, inputs={"corpus": One("curate"),
    "tokenizer": One("tokenizer")}, run=run)
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from stages import disk, fingerprint, manifest
from stages.config import StageConfig
from stages.journal import Journal, Listener
from stages.manifest import EVENTS, MANIFEST, InputEntry, Manifest
from stages.store import Artifact, Store


@dataclass(frozen=True)
class InputSpec:
    """One declared input. `runtime`: recorded in the manifest, not part of the key."""

    stages: tuple[str, ...]
    many: bool = False
    optional: bool = False
    runtime: bool = False
    default: Literal["last", "each"] = "last"


def One(stage: str, *, runtime: bool = False) -> InputSpec:
    """The artifact of `stage` under the same recipe."""
    return InputSpec((stage,), runtime=runtime)


def Optional(stage: str, *, runtime: bool = False) -> InputSpec:
    """The artifact of `stage` under the same recipe, if it is there."""
    return InputSpec((stage,), optional=True, runtime=runtime)


def Many(stage: str, *, runtime: bool = False) -> InputSpec:
    """Every artifact of `stage` under the same recipe."""
    return InputSpec((stage,), many=True, runtime=runtime)


def OneOf(*stages: str, runtime: bool = False, default: Literal["last", "each"] = "last") -> InputSpec:
    """One artifact of any of `stages`, as named by the user. By default the newest of the first kind under the same
    recipe ("last"), or a job for each of them ("each")."""
    return InputSpec(stages, runtime=runtime, default=default)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a stage returns. `facts` are the same every time and enter the digest; `measurements` are not and do not.
    `measured_files` names files and folders in `out` whose bytes are not the same every time."""

    facts: dict[str, Any]
    measurements: dict[str, Any] = field(default_factory=dict)
    measured_files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The artifacts that go into a stage, by declared name, and the place in which the stage works."""

    artifacts: Mapping[str, tuple[Artifact, ...]]
    entries: dict[str, tuple[InputEntry, ...]]
    externals: dict[str, Any]
    store: Store
    key: str
    label: str

    def __getitem__(self, name: str) -> Artifact:
        (artifact,) = self.artifacts[name]
        return artifact

    def get(self, name: str) -> Artifact | None:
        """An optional input, or None."""
        found = self.artifacts[name]
        return found[0] if found else None

    def many(self, name: str) -> tuple[Artifact, ...]:
        return self.artifacts[name]


def no_externals(config: Any, store: Store) -> dict[str, Any]:
    """For a stage that depends on nothing outside the store."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The declaration of a stage. `revision` is raised by hand when the meaning of the code changes. `externals` says
    what outside the store enters the key. A stage that `resumes` finds in `out` what a killed attempt left there; for
    any other, `out` is emptied first. `derives` names the stages of artifacts that it publishes on its way."""

    name: str
    revision: int
    config: type[StageConfig]
    inputs: Mapping[str, InputSpec]
    run: Callable[[Any, Inputs, Path, Journal], Facts]
    externals: Callable[[Any, Store], dict[str, Any]] = no_externals
    resumes: bool = False
    derives: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """A stage with everything resolved that its result depends on."""

    stage: Stage
    config: StageConfig
    externals: dict[str, Any]
    inputs: Mapping[str, tuple[Artifact, ...]]
    label: str

    @cached_property
    def key(self) -> str:
        return fingerprint.key(
            stage=self.stage.name,
            revision=self.stage.revision,
            identity=fingerprint.identity(self.config),
            externals=self.externals,
            inputs={
                name: [a.digest for a in found]
                for name, found in self.inputs.items()
                if not self.stage.inputs[name].runtime
            },
        )

    def input_entries(self) -> dict[str, tuple[InputEntry, ...]]:
        return {
            name: tuple(
                InputEntry(stage=a.stage, key=a.key, digest=a.digest, runtime=self.stage.inputs[name].runtime)
                for a in found
            )
            for name, found in self.inputs.items()
        }


def execute(
    job: Job,
    store: Store,
    *,
    listeners: tuple[Listener, ...] = (),
    rebuild: bool = False,
    clock: Callable[[], float] = time.time,
) -> Artifact:
    """The artifact of `job`: the one that is there, or a new one.

    With `rebuild` the stage runs even so, and its result is compared with the one that is there (StoreConflict if
    they differ). Raises InputError for what the user can mend, TryAgain if another process holds the lease or the
    disk is full.
    """
    stage = job.stage
    present = store.find(stage.name, job.key)
    if present and not rebuild:
        store.is_being_built(
            stage.name, job.key
        )  # clears the lease of a process that was killed after it had published
        return present
    lease = store.lease(stage.name, job.key)
    lease.acquire()
    try:
        present = store.find(stage.name, job.key)
        if present and not rebuild:
            return present
        out = store.work_path(stage.name, job.key)
        _prepare(out, keep=stage.resumes)
        started, cpu_started = clock(), _cpu_seconds()
        journal = Journal(out / EVENTS, stage=stage.name, listeners=listeners, clock=clock)
        try:
            journal.event("stage.started", key=job.key, label=job.label)
            inputs = Inputs(
                artifacts=job.inputs,
                entries=job.input_entries(),
                externals=job.externals,
                store=store,
                key=job.key,
                label=job.label,
            )
            result = stage.run(job.config, inputs, out, journal)
            journal.event("stage.finished", key=job.key, seconds=round(clock() - started, 3))
        finally:
            journal.close()
        made = describe(
            stage=stage.name,
            revision=stage.revision,
            label=job.label,
            key=job.key,
            identity=fingerprint.identity(job.config),
            config=job.config.model_dump(mode="json"),
            rounding=fingerprint.rounding(job.config),
            externals=job.externals,
            inputs=job.input_entries(),
            directory=out,
            result=result,
            started=started,
            finished=clock(),
            cpu_seconds=_cpu_seconds() - cpu_started,
        )
        return store.publish(out, made, lease)
    except (OSError, RuntimeError) as error:
        raise disk.explained(error, store.root) from error
    finally:
        lease.release()


def derive(
    inputs: Inputs, *, stage: str, revision: int, identity: dict[str, Any], directory: Path, facts: Facts
) -> Artifact:
    """Publish `directory`, which is consumed, as an artifact of its own that a running stage derives: a checkpoint of
    a training.

    Its key follows from the running stage's key and `identity`; its inputs are those of the running stage. What is
    published already is returned as it is, so a stage that was killed in between just calls again.
    """
    key = fingerprint.key(stage=stage, revision=revision, parent=inputs.key, identity=identity)
    lease = inputs.store.lease(stage, key)
    lease.acquire()
    try:
        present = inputs.store.find(stage, key)
        if present:
            return present
        now = time.time()
        config = {"parent": inputs.key, **identity}
        made = describe(
            stage=stage,
            revision=revision,
            label=inputs.label,
            key=key,
            identity=config,
            config=config,
            rounding={},
            externals={},
            inputs=inputs.entries,
            directory=directory,
            result=facts,
            started=now,
            finished=now,
            cpu_seconds=0.0,
        )
        return inputs.store.publish(directory, made, lease)
    finally:
        lease.release()


def describe(
    *,
    stage: str,
    revision: int,
    label: str,
    key: str,
    identity: dict[str, Any],
    config: dict[str, Any],
    rounding: dict[str, Any],
    externals: dict[str, Any],
    inputs: dict[str, tuple[InputEntry, ...]],
    directory: Path,
    result: Facts,
    started: float,
    finished: float,
    cpu_seconds: float,
) -> Manifest:
    """The manifest of what stands in `directory`."""
    files = manifest.hash_files(directory, result.measured_files)
    facts = fingerprint.canonical(result.facts, "facts")
    return Manifest(
        stage=stage,
        revision=revision,
        label=label,
        key=key,
        identity=identity,
        config=config,
        externals=externals,
        inputs=inputs,
        files=files,
        facts=facts,
        measurements=result.measurements,
        provenance=manifest.provenance(rounding, started, finished, cpu_seconds),
        digest=manifest.content_digest(stage, files, facts),
    )


def _prepare(out: Path, *, keep: bool) -> None:
    """An empty work directory, or for a stage that resumes the one that is there, less the temporary files (names
    that begin with a dot) of a write that was cut off. The journal of earlier attempts stays in both."""
    out.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST).unlink(missing_ok=True)
    for path in list(out.rglob(".*")) if keep else list(out.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != EVENTS:
            path.unlink()


def _cpu_seconds() -> float:
    """User and system time of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
