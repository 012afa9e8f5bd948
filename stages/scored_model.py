"""A checkpoint, an exported or an adopted model as an artifact, loaded to be scored with its vocabulary.

Ours begin every sequence with exactly one end-of-document token, as in training; models from outside begin a text as
their own tokenizer does, and lm-eval with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from data.errors import InputError
from stages.store import Artifact

if TYPE_CHECKING:
    from eval.scoring.pretrained_tokenizer import PretrainedTokenizer
    from eval.scoring.scorer import Scorer
    from eval.subject import Tokenizer

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bfloat16"]
StartToken = Literal["always", "as tokenizer"]
EXPORTED = "hf"


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What is scored, and how its sequences begin."""

    model: Any
    scorer: "Scorer"
    tokenizer: "Tokenizer"
    start_token: StartToken


@dataclass(frozen=True, kw_only=True)
class Adopted:
    """A model from outside with its own tokenizer."""

    model: Any
    tokenizer: "PretrainedTokenizer"

    def scorer(self, batch_tokens: int) -> "Scorer":
        from eval.scoring.scorer import Scorer
        from eval.scoring.transformers_model import TransformersModel

        return Scorer(
            TransformersModel(self.model),
            prefix_token=self.tokenizer.prefix_id,
            always_prefix=False,
            end_tokens=self.tokenizer.end_ids,
            batch_tokens=batch_tokens,
        )


def load_scored(
    model: Artifact,
    tokenizer: Path,
    *,
    batch_tokens: int,
    form: str = EXPORTED,
    device: Device = "cpu",
    precision: Precision = "float32",
) -> Scored:
    """The model of an artifact, ready to be scored. tokenizer: the folder of our vocabulary, of which an adopted model
    makes no use. form: of an exported model.

    Raises InputError for a form that was not exported, and for a GPU that is not there.
    """
    if model.stage == "adopt":
        adopted = load_adopted(model.path / "hf")
        _place(adopted.model, device, precision)
        return Scored(
            model=adopted.model,
            scorer=adopted.scorer(batch_tokens),
            tokenizer=adopted.tokenizer,
            start_token="as tokenizer",
        )
    from data.vocabulary.vocabulary import Vocabulary

    loaded = load_scored_model(model, form)
    vocabulary = Vocabulary.load_folder(tokenizer)
    _place(loaded, device, precision)
    scorer = make_scorer(loaded, vocabulary.end_id, batch_tokens)
    return Scored(model=loaded, scorer=scorer, tokenizer=vocabulary, start_token="always")


def load_scored_model(model: Artifact, form: str = EXPORTED) -> Any:
    """The transformers model of a checkpoint or of an export, float32, on the CPU, in eval mode. No pickle is read and
    no code of the artifact is run.
    """
    if model.stage == "export":
        return _load_export(model, form)
    from stages.pretrain.checkpoints.checkpoint import load_model

    return load_model(model.path)


def load_adopted(folder: Path) -> Adopted:
    """A model in Hugging Face's form, float32, on the CPU, in eval mode. Raises InputError if transformers cannot read
    it without code of its own, and if weights are missing.
    """
    from transformers import AutoTokenizer

    from eval.scoring.pretrained_tokenizer import PretrainedTokenizer
    from stages.export.hf import load

    try:
        model = load(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except InputError:
        raise
    except Exception as error:  # whatever a file that anybody may have written makes of a reader
        raise InputError(f"{folder} cannot be loaded: {type(error).__name__}: {error}") from None
    return Adopted(model=model, tokenizer=PretrainedTokenizer(tokenizer, _end_ids(model)))


def make_scorer(model: Any, eos_id: int, batch_tokens: int) -> "Scorer":
    """A scorer whose one prefix token is the end-of-document token, as in training."""
    from eval.scoring.scorer import Scorer
    from eval.scoring.transformers_model import TransformersModel

    return Scorer(TransformersModel(model), prefix_token=eos_id, batch_tokens=batch_tokens)


def _load_export(model: Artifact, form: str) -> Any:
    from stages.export.config import Form

    path = model.path / Form(form).path
    if not path.exists():
        raise InputError(
            f"{model.path.name} has no form {form} to evaluate; export it (export.forms), or set evaluate.form"
        )
    if path.is_dir():
        from stages.export.hf import load

        return load(path)
    if not (model.path / "hf").is_dir():
        raise InputError(f"{model.path.name}: a GGUF file is read with the config of the form hf; export that too")
    from transformers import AutoConfig

    from stages.export import gguf_file

    return gguf_file.load(path, AutoConfig.from_pretrained(model.path / "hf", local_files_only=True))


def _end_ids(model: Any) -> Sequence[int]:
    found = model.generation_config.eos_token_id if model.generation_config is not None else None
    return () if found is None else (found,) if isinstance(found, int) else tuple(found)


def _place(model: Any, device: Device, precision: Precision) -> None:
    """auto: a GPU if there is one."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("evaluate.device = cuda, and PyTorch finds no GPU here; set it to cpu or auto")
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    model.to(device="cuda" if on_gpu else "cpu", dtype=getattr(torch, precision))
