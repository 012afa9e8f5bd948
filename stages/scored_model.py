"""A checkpoint or an exported model as an artifact, loaded to be scored."""

from typing import TYPE_CHECKING, Any

from data.errors import InputError
from stages.store import Artifact

if TYPE_CHECKING:
    from eval.scoring.scorer import Scorer


def load_scored_model(model: Artifact) -> Any:
    """The transformers model of a checkpoint or of an export, float32, on the CPU, in eval mode. No pickle is read and
    no code of the artifact is run.
    """
    if model.stage == "export":
        from stages.export.hf import load

        if not (model.path / "hf").is_dir():
            raise InputError(f"{model.path.name} has no Hugging Face form to evaluate; export one: export.forms")
        return load(model.path / "hf")
    from stages.pretrain.checkpoints.checkpoint import load_model

    return load_model(model.path)


def make_scorer(model: Any, eos_id: int, batch_tokens: int) -> "Scorer":
    """A scorer whose one prefix token is the end-of-document token, as in training."""
    from eval.scoring.scorer import Scorer
    from eval.scoring.transformers_model import TransformersModel

    return Scorer(TransformersModel(model), prefix_token=eos_id, batch_tokens=batch_tokens)
