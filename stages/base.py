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

from stages import disk, fingerprint, manifest, out_of_memory
from stages.alive import Alive
from stages.config import StageConfig
from stages.journal import Journal, Listener, read_events
from stages.lease import Lease
from stages.manifest import EVENTS, MANIFEST, InputEntry, Manifest
from stages.store import Artifact, Store

Choice = Callable[[Any, Store, Mapping[str, tuple[Artifact, ...]]], Artifact | None]


@dataclass(frozen=True)
class InputSpec:
    """One declared input. `runtime`: recorded in the manifest, not part of the key. `choose`: how the stage picks it
    where the user does not."""

    stages: tuple[str, ...]
    many: bool = False
    optional: bool = False
    runtime: bool = False
    default: Literal["last", "each"] = "last"
    choose: Choice | None = None


def One(stage: str, *, runtime: bool = False) -> InputSpec:
    """The artifact of `stage` under the same recipe."""
    return InputSpec((stage,), runtime=runtime)


def Optional(stage: str, *, runtime: bool = False) -> InputSpec:
    """The artifact of `stage` under the same recipe, if it is there."""
    return InputSpec((stage,), optional=True, runtime=runtime)


def Many(stage: str, *, optional: bool = False, runtime: bool = False) -> InputSpec:
    """Every artifact of `stage` under the same recipe; if `optional`, those that are there."""
    return InputSpec((stage,), many=True, optional=optional, runtime=runtime)


def OneOf(*stages: str, runtime: bool = False, default: Literal["last", "each"] = "last") -> InputSpec:
    """One artifact of any of `stages`, as named by the user. By default those of the first kind under the same recipe:
    a job for each of them or, of those that a stage derives on its way, for the newest alone ("last")."""
    return InputSpec(stages, runtime=runtime, default=default)


def Chosen(*stages: str, by: Choice) -> InputSpec:
    """One artifact of any of `stages`, as named by the user. By default what `by(config, store, inputs declared before
    it)` picks; where it picks none, there is nothing to run the stage on."""
    return InputSpec(stages, choose=by)


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
    rounding: dict[str, Any]
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


def nothing_to_forget(store: Store, key: str) -> None:
    """For a stage that keeps nothing outside its work directory."""


def no_externals(config: Any, store: Store) -> dict[str, Any]:
    """For a stage that depends on nothing outside the store."""
    return {}


def whole(config: Any, inputs: Mapping[str, tuple[Artifact, ...]]) -> Any:
    """For a stage whose configuration bears on whatever it is run on."""
    return config


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The declaration of a stage. `revision` is raised by hand when the meaning of the code changes. `narrow` takes
    out of the configuration what does not bear on the inputs, so that it is no part of the key. `externals` says what
    outside the store enters the key, given what `narrow` leaves. A stage that `resumes` finds in `out` what a killed
    attempt left there; for any other, `out` is emptied first. `derives` names the stages of artifacts that it publishes
    on its way. `forget` removes what the stage keeps outside its work directory, so that a rebuild starts from
    nothing."""

    name: str
    revision: int
    config: type[StageConfig]
    inputs: Mapping[str, InputSpec]
    run: Callable[[Any, Inputs, Path, Journal], Facts]
    narrow: Callable[[Any, Mapping[str, tuple[Artifact, ...]]], Any] = whole
    externals: Callable[[Any, Store], dict[str, Any]] = no_externals
    resumes: bool = False
    derives: tuple[str, ...] = ()
    forget: Callable[[Store, str], None] = nothing_to_forget


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

    def place(self, store: Store) -> Inputs:
        """What the stage is given beside its configuration."""
        return Inputs(
            artifacts=self.inputs,
            entries=self.input_entries(),
            externals=self.externals,
            rounding=fingerprint.rounding(self.config),
            store=store,
            key=self.key,
            label=self.label,
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

    With `rebuild` the stage runs even so, from nothing, and its result is compared with the one that is there
    (StoreConflict if they differ). Raises InputError for what the user can mend, too little memory included, TryAgain
    if another process holds the lease or the disk is full.
    """
    name = job.stage.name
    present = store.find(name, job.key)
    if present and not rebuild:
        store.is_being_built(name, job.key)  # clears the lease of a process that was killed after it had published
        return present
    try:
        with store.lease(name, job.key) as lease:
            present = store.find(name, job.key)
            if present and not rebuild:
                return present
            return _build(job, store, lease, listeners, rebuild, clock)
    except Exception as error:
        explained = disk.explained(error, store.root)
        if explained is error:
            explained = out_of_memory.explained(error, name, job.config)
        if explained is error:
            raise
        raise explained from error


def _build(
    job: Job,
    store: Store,
    lease: Lease,
    listeners: tuple[Listener, ...],
    rebuild: bool,
    clock: Callable[[], float],
) -> Artifact:
    stage, out = job.stage, store.work_path(job.stage.name, job.key)
    if rebuild:
        stage.forget(store, job.key)
    _prepare(out, keep=stage.resumes and not rebuild)
    started, cpu_started = clock(), _cpu_seconds()
    journal = Journal(out / EVENTS, stage=stage.name, listeners=listeners, clock=clock)
    try:
        journal.event("stage.started", key=job.key, label=job.label)
        with Alive(journal):
            result = stage.run(job.config, job.place(store), out, journal)
        journal.event("stage.finished", key=job.key, seconds=round(clock() - started, 3))
    finally:
        journal.close()
    lease.beat()  # LeaseLost here, rather than hashes of files that a new owner is writing
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
        provenance={
            "seconds": round(clock() - started, 3),
            "cpu_seconds": round(_cpu_seconds() - cpu_started, 3),
            "attempts": sum(event["kind"] == "stage.started" for event in read_events(out / EVENTS)),
        },
    )
    return store.publish(out, made, lease)


def derive(
    inputs: Inputs, *, stage: str, revision: int, identity: dict[str, Any], directory: Path, facts: Facts
) -> Artifact:
    """Publish `directory`, which is consumed, as an artifact of its own that a running stage derives: a checkpoint of a
    training.

    Its key follows from the running stage's key and `identity`; its inputs are those of the running stage. What is
    published already is returned as it is, so a stage that was killed in between just calls again.
    """
    key = fingerprint.key(stage=stage, revision=revision, parent=inputs.key, identity=identity)
    with inputs.store.lease(stage, key) as lease:
        present = inputs.store.find(stage, key)
        if present:
            return present
        config = {"parent": inputs.key, **identity}
        made = describe(
            stage=stage,
            revision=revision,
            label=inputs.label,
            key=key,
            identity=config,
            config=config,
            rounding=inputs.rounding,
            externals={},
            inputs=inputs.entries,
            directory=directory,
            result=facts,
            provenance={"seconds": 0.0, "cpu_seconds": 0.0},
        )
        return inputs.store.publish(directory, made, lease)


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
    provenance: dict[str, Any],
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
        provenance={"rounding": rounding, **provenance, **manifest.provenance()},
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
            path.unlink(missing_ok=True)  # it may have stood in a folder that has just gone


def _cpu_seconds() -> float:
    """User and system time of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
