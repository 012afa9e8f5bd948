"""Which evaluation another is compared with, where the user names none.

A checkpoint on the way is compared with the one before it in its training: against a finished model it would always
have regressed. A finished model (a training's last checkpoint, an export, an adopted model) is compared with the newest
baseline that was promoted under the name in the recipe. Where there is none, a last checkpoint with the one before it,
and an export with the checkpoint that it was made from.
"""

from collections.abc import Mapping

from stages.compare.baselines import current
from stages.compare.config import CompareConfig
from stages.current import of_same_training
from stages.manifest import InputEntry
from stages.store import Artifact, Store


def choose_baseline(config: CompareConfig, store: Store, inputs: Mapping[str, tuple[Artifact, ...]]) -> Artifact | None:
    """The evaluation or baseline to compare the candidate among `inputs` with, or None if there is none."""
    (candidate,) = inputs["candidate"]
    (judged,) = candidate.manifest.inputs["model"]
    model = store.find(judged.stage, judged.key)
    on_the_way = judged.stage == "checkpoint" and model is not None and not model.facts["last"]
    promoted = None if on_the_way else current(store, config.baseline)
    if promoted is not None or model is None:
        return promoted
    reference = _before(store, model) if model.stage == "checkpoint" else _made_from(store, model)
    return None if reference is None else _evaluation_of(store, reference, like=candidate)


def _before(store: Store, checkpoint: Artifact) -> Artifact | None:
    """The checkpoint before this one in its training."""
    step = checkpoint.facts["step"]
    earlier = [found for found in of_same_training(store, checkpoint) if found.facts["step"] < step]
    return max(earlier, key=lambda found: found.facts["step"], default=None)


def _made_from(store: Store, model: Artifact) -> Artifact | None:
    """The checkpoint that an exported model was made from."""
    entries: list[InputEntry] = [entry for found in model.manifest.inputs.values() for entry in found]
    return next((store.find(entry.stage, entry.key) for entry in entries if entry.stage == "checkpoint"), None)


def _evaluation_of(store: Store, model: Artifact, *, like: Artifact) -> Artifact | None:
    """The evaluation of a model that agrees with `like` in most of what it was asked and how; the newest of these."""

    def rank(found: Artifact) -> tuple[int, int, str]:
        ours, theirs = found.manifest, like.manifest
        same = [  # but for the suites: a finished model is asked more of them
            a[name] == b[name]
            for a, b in ((ours.externals, theirs.externals), (ours.identity, theirs.identity))
            for name in (a.keys() & b.keys()) - {"suites"}
        ]
        suites = found.facts["suites"].items() & like.facts["suites"].items()
        return len(suites), sum(same), ours.provenance["finished"]

    evaluations = [
        found
        for found in store.all("evaluate")
        if any(entry.stage == model.stage and entry.key == model.key for entry in found.manifest.inputs["model"])
    ]
    return max(evaluations, key=rank, default=None)
