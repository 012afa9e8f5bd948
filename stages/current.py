"""The model that a recipe stands for now. Pure over manifests."""

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
    parent = model.manifest.config.get("parent")
    if model.stage != "checkpoint" or parent is None:
        return True
    evaluated = {entry.key for made in store.all("evaluate") for entry in made.manifest.inputs["model"]}
    return not any(
        other.facts["step"] > model.facts["step"]
        for other in store.all("checkpoint")
        if other.manifest.config.get("parent") == parent and other.key in evaluated
    )
