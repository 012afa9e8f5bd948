"""From a recipe to jobs: which artifacts a stage takes, found by recomputing the keys of everything upstream. No
pointers are kept anywhere."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from data.errors import InputError
from stages.base import InputSpec, Job, Stage
from stages.config import StageConfig
from stages.store import Artifact, Store


class MissingInput(InputError):
    """An artifact that a stage needs has not been built yet."""


class HasConfigs(Protocol):
    """What is needed of a recipe."""

    @property
    def name(self) -> str: ...

    def config_for(self, stage: str) -> StageConfig: ...


class Resolver:
    """The jobs of one recipe over one store. `chosen` are the inputs that a user named: {input name: artifact}."""

    def __init__(
        self,
        recipe: HasConfigs,
        store: Store,
        stages: Mapping[str, Stage],
        chosen: Mapping[str, Artifact] | None = None,
    ) -> None:
        self.recipe = recipe
        self.store = store
        self._stages = stages
        self._chosen = chosen or {}
        self._externals: dict[str, dict[str, Any]] = {}
        self._producers = {derived: stage.name for stage in stages.values() for derived in stage.derives}

    def jobs(self, name: str) -> list[Job]:
        """The jobs of a stage: one, or one for each artifact that it is to be run on. Raises MissingInput if
        something upstream is not there."""
        stage = self._stages[name]
        config = self.recipe.config_for(name)
        if name not in self._externals:
            self._externals[name] = stage.externals(config, self.store)
        choices = [self._choices(stage, wanted, spec) for wanted, spec in stage.inputs.items()]
        return [
            Job(
                stage=stage,
                config=config,
                externals=self._externals[name],
                inputs=dict(zip(stage.inputs, choice, strict=False)),
                label=self.recipe.name,
            )
            for choice in itertools.product(*choices)
        ]

    def job(self, name: str, **chosen: Artifact) -> Job:
        """The only job of a stage, its inputs chosen where there is a choice."""
        resolver = Resolver(self.recipe, self.store, self._stages, chosen)
        resolver._externals = self._externals
        (job,) = resolver.jobs(name)
        return job

    def found(self, name: str) -> list[Artifact]:
        """The artifacts of all jobs of a stage. Raises MissingInput unless each is there."""
        artifacts = []
        for job in self.jobs(name):
            artifact = self.store.find(name, job.key)
            if artifact is None:
                raise MissingInput(
                    f"{name} ({job.key}) has not been built for this recipe: "
                    f"run `python -m stages.{name} RECIPE` first, or add --upstream"
                )
            artifacts.append(artifact)
        return artifacts

    def derived(self, stage: str) -> list[Artifact]:
        """The artifacts, in the order in which they were made, that the producer of `stage` has published under this
        recipe."""
        (producer,) = self.jobs(self._producers[stage])
        found = [
            artifact for artifact in self.store.all(stage) if artifact.manifest.config.get("parent") == producer.key
        ]
        return sorted(found, key=lambda artifact: artifact.facts["step"])

    def order(self, target: str) -> list[str]:
        """`target` and every stage upstream of it, each after what it needs."""
        needed: dict[str, None] = {}

        def visit(name: str) -> None:
            for spec in self._stages[name].inputs.values():
                for stage in spec.stages[:1]:
                    visit(self._producers.get(stage, stage))
            needed.setdefault(name)

        visit(target)
        return list(needed)

    def _choices(self, stage: Stage, name: str, spec: InputSpec) -> Sequence[tuple[Artifact, ...]]:
        if name in self._chosen:
            artifact = self._chosen[name]
            if artifact.stage not in spec.stages:
                raise InputError(
                    f"{stage.name} takes {' or '.join(spec.stages)} as its {name}, "
                    f"and {artifact.path.name} is of {artifact.stage}"
                )
            return [(artifact,)]
        first = spec.stages[0]
        if first in self._producers:
            return self._derived_choices(stage, spec, first)
        if spec.many:
            return [tuple(self.found(first))]
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
            raise MissingInput(
                f"{stage.name} needs a {first} of this recipe: "
                f"run `python -m stages.{self._producers[first]} RECIPE` first, or add --upstream"
            )
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
