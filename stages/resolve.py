"""From a recipe to jobs: which artifacts a stage takes, found by recomputing the keys of everything upstream. No
pointers are kept anywhere."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from data.errors import InputError
from stages import fingerprint
from stages.base import InputSpec, Job, Stage
from stages.config import StageConfig
from stages.store import Artifact, Store

Externals = dict[tuple[str, str], dict[str, Any]]  # by stage and digest of its configuration


class MissingInput(InputError):
    """An artifact that a stage needs has not been built yet."""


def _first(stage: str) -> str:
    """What to do where an artifact of a stage is missing."""
    return f"run `python -m stages.{stage} RECIPE` first, or add --upstream (in a form, switch on `upstream`)"


def nothing_to_do(stage: str) -> MissingInput:
    """For a stage that has no job because an input that it picks itself is not there."""
    return MissingInput(
        f"{stage} finds nothing that it could take under this recipe: name its inputs with --input NAME=ARTIFACT "
        "(in a form, under `inputs`)"
    )


class HasConfigs(Protocol):
    """What is needed of a recipe."""

    @property
    def name(self) -> str: ...

    def config_for(self, stage: str) -> StageConfig: ...


class Resolver:
    """The jobs of one recipe over one store. `chosen` are the inputs that a user named: {input name: artifact}.
    `externals` keeps what stages depend on outside the store, which can take long to find out: to be handed from one
    resolver to the next that is to see the same."""

    def __init__(
        self,
        recipe: HasConfigs,
        store: Store,
        stages: Mapping[str, Stage],
        chosen: Mapping[str, Artifact] | None = None,
        externals: Externals | None = None,
    ) -> None:
        self.recipe = recipe
        self.store = store
        self._stages = stages
        self._chosen = chosen or {}
        self._externals: Externals = {} if externals is None else externals
        self._seen: dict[str, list[Job]] = {}  # in the call that goes on: many stages lead to the same ones upstream
        self._depth = 0
        self._producers = {derived: stage.name for stage in stages.values() for derived in stage.derives}

    def jobs(self, name: str) -> list[Job]:
        """The jobs of a stage: one, or one for each artifact that it is to be run on; none where it picks an input
        itself and finds nothing. Raises MissingInput if something upstream is not there."""
        self._depth += 1
        try:
            if name not in self._seen:
                self._seen[name] = self._resolved(name)
            return self._seen[name]
        finally:
            self._depth -= 1
            if not self._depth:
                self._seen = {}  # the store may be another one at the next call

    def _resolved(self, name: str) -> list[Job]:
        stage = self._stages[name]
        config = self.recipe.config_for(name)
        choices: list[dict[str, tuple[Artifact, ...]]] = [{}]
        for wanted, spec in stage.inputs.items():
            choices = [
                {**before, wanted: found}
                for before in choices
                for found in self._choices(stage, wanted, spec, config, before)
            ]
        return [self._job(stage, stage.narrow(config, choice), choice) for choice in choices]

    def _job(self, stage: Stage, config: StageConfig, inputs: Mapping[str, tuple[Artifact, ...]]) -> Job:
        place = stage.name, fingerprint.digest(config)
        if place not in self._externals:
            self._externals[place] = stage.externals(config, self.store)
        externals = self._externals[place]
        return Job(stage=stage, config=config, externals=externals, inputs=inputs, label=self.recipe.name)

    def job(self, name: str, **chosen: Artifact) -> Job:
        """The only job of a stage, its inputs chosen where there is a choice. Raises MissingInput as `jobs` does, and
        if there is none."""
        resolver = Resolver(self.recipe, self.store, self._stages, chosen, self._externals)
        jobs = resolver.jobs(name)
        if not jobs:
            raise nothing_to_do(name)
        (job,) = jobs
        return job

    def found(self, name: str) -> list[Artifact]:
        """The artifacts of all jobs of a stage. Raises MissingInput unless each is there."""
        artifacts = []
        for job in self.jobs(name):
            artifact = self.store.find(name, job.key)
            if artifact is None:
                raise MissingInput(f"{name} ({job.key}) has not been built for this recipe: {_first(name)}")
            artifacts.append(artifact)
        return artifacts

    def _present(self, name: str) -> list[Artifact]:
        """The artifacts of those jobs of a stage that have been run."""
        try:
            jobs = self.jobs(name)
        except MissingInput:
            return []
        return [found for job in jobs if (found := self.store.find(name, job.key)) is not None]

    def derived(self, stage: str) -> list[Artifact]:
        """The artifacts, in the order in which they were made, that the producer of `stage` has published under this
        recipe."""
        (producer,) = self.jobs(self._producers[stage])
        found = [
            artifact for artifact in self.store.all(stage) if artifact.manifest.config.get("parent") == producer.key
        ]
        return sorted(found, key=lambda artifact: artifact.facts["step"])

    def order(self, target: str) -> list[str]:
        """`target` and every stage upstream of it, each after what it needs; not for inputs that a user named."""
        needed: dict[str, None] = {}

        def visit(name: str) -> None:
            for wanted, spec in self._stages[name].inputs.items():
                if name == target and wanted in self._chosen:
                    continue
                for stage in spec.stages[:1]:
                    visit(self._producers.get(stage, stage))
            needed.setdefault(name)

        visit(target)
        return list(needed)

    def _choices(
        self,
        stage: Stage,
        name: str,
        spec: InputSpec,
        config: StageConfig,
        before: Mapping[str, tuple[Artifact, ...]],
    ) -> Sequence[tuple[Artifact, ...]]:
        if name in self._chosen:
            artifact = self._chosen[name]
            if artifact.stage not in spec.stages:
                raise InputError(
                    f"{stage.name} takes {' or '.join(spec.stages)} as its {name}, "
                    f"and {artifact.path.name} is of {artifact.stage}"
                )
            return [(artifact,)]
        if spec.choose is not None:
            picked = spec.choose(config, self.store, before)
            return [] if picked is None else [(picked,)]
        first = spec.stages[0]
        if first in self._producers:
            return self._derived_choices(stage, spec, first)
        if spec.many:
            return [tuple(self._present(first) if spec.optional else self.found(first))]
        try:
            return [(artifact,) for artifact in self.found(first)]
        except MissingInput:
            if spec.optional:
                return [()]
            raise

    def _derived_choices(self, stage: Stage, spec: InputSpec, first: str) -> Sequence[tuple[Artifact, ...]]:
        if spec.default == "last":
            self.found(self._producers[first])  # the last one is known once the producer has finished
        artifacts = self.derived(first)
        if not artifacts:
            raise MissingInput(f"{stage.name} needs a {first} of this recipe: {_first(self._producers[first])}")
        return [(artifact,) for artifact in (artifacts[-1:] if spec.default == "last" else artifacts)]


def lineage(
    artifact: Artifact, store: Store, depth: int = 0, seen: set[str] | None = None
) -> Iterator[tuple[int, str, str, Artifact | None]]:
    """(depth, stage, key, artifact or None if it is gone) of an artifact and of all that it was made from; each one
    is followed once."""
    seen = set() if seen is None else seen
    yield depth, artifact.stage, artifact.key, artifact
    for entries in artifact.manifest.inputs.values():
        for entry in entries:
            if f"{entry.stage}/{entry.key}" in seen:
                continue
            seen.add(f"{entry.stage}/{entry.key}")
            found = store.find(entry.stage, entry.key)
            if found is None:
                yield depth + 1, entry.stage, entry.key, None
            else:
                yield from lineage(found, store, depth + 1, seen)
