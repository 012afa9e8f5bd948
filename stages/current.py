"""The model that a recipe stands for now, and what has been judged. Pure over manifests."""

from collections.abc import Iterable

from stages.resolve import MissingInput, Resolver
from stages.store import Artifact, Store


def current_model(resolver: Resolver) -> Artifact:
    """The exported model of a recipe if it is there, else its last healthy checkpoint. Raises MissingInput for a recipe
    that has neither."""
    try:
        checkpoints = resolver.derived("checkpoint")
    except MissingInput:
        checkpoints = []
    if not checkpoints:
        raise MissingInput("this recipe has no healthy checkpoint yet: run `python -m stages.pretrain RECIPE` first")
    try:
        return resolver.found("export")[0]
    except MissingInput:
        return checkpoints[-1]


def evaluation_of(resolver: Resolver, model: Artifact) -> Artifact | None:
    """What the recipe's evaluation of a model has found, if it is there."""
    return resolver.store.find("evaluate", resolver.job("evaluate", model=model).key)


def is_newest(store: Store, model: Artifact) -> bool:
    """Whether no later checkpoint of the same training has been evaluated: an evaluation that comes late says nothing
    about how things stand now."""
    if model.stage != "checkpoint":
        return True
    evaluated = judged_keys(store.all("evaluate"))
    later = (other for other in of_same_training(store, model) if other.facts["step"] > model.facts["step"])
    return not any(other.key in evaluated for other in later)


def of_same_training(store: Store, checkpoint: Artifact) -> list[Artifact]:
    """The checkpoints of the training that made this one, which is among them."""
    parent = checkpoint.manifest.config["parent"]
    return [found for found in store.all("checkpoint") if found.manifest.config["parent"] == parent]


def judged_keys(evaluations: Iterable[Artifact]) -> set[str]:
    """Keys of the models that these are evaluations of."""
    return {entry.key for made in evaluations for entry in made.manifest.inputs["model"]}
