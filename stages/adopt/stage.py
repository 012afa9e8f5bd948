"""The stage: take the files, or write a GGUF file's content in Hugging Face's form; load, and try once."""

import functools
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import InputError
from stages.adopt.config import AdoptConfig
from stages.adopt.files import CONFIG, PATTERNS, model_files
from stages.base import Facts, Inputs
from stages.files import tree
from stages.journal import Journal

if TYPE_CHECKING:
    from stages.scored_model import Adopted

FORM, HUB = "hf", "safetensors from the hub"
TEXT = "The quick brown fox jumps over the lazy dog.\n"


def run(config: AdoptConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Keep the model under hf/. Raises InputError for one that transformers cannot read without code of its own, whose
    weights are incomplete, that sees the tokens that it should predict, or whose tokenizer has ids that it has no rows
    for.
    """
    if not config.source:
        raise InputError("adopt.source is empty: set it to a Hugging Face folder, a .gguf file or a name on the hub")
    source, folder = Path(config.source), out / FORM
    steps = ("read", "try")
    journal.progress(steps[0], 0, len(steps), "steps")
    if source.is_file():
        form = "gguf"
        _write_gguf(source, folder)
    elif source.is_dir():
        form = "safetensors"
        _copy(source, folder)
    else:
        form = HUB
        _copy(_fetch(config), folder)
    journal.progress(steps[1], 1, len(steps), "steps")
    facts = _try(folder)
    journal.progress(steps[1], 2, len(steps), "steps")
    return Facts(
        facts={
            "format": form,
            "revision": config.revision if form == HUB else "",
            "step": None,
            "tokens_seen": None,
            "files": [f"{FORM}/{path}" for path in tree(folder)],
            **facts,
        },
        measurements={"source": config.source},
    )


def _copy(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    for path in model_files(source):
        shutil.copyfile(path, folder / path.name)


def _fetch(config: AdoptConfig) -> Path:
    """A commit of a repository on the hub, in the local cache; only the files that are taken."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(config.source, revision=config.revision, allow_patterns=list(PATTERNS)))
    except Exception as error:  # whatever the network and the hub's own errors are
        raise InputError(
            f"adopt.source: {config.source} at {config.revision} cannot be had: {type(error).__name__}: {error}"
        ) from None


def _write_gguf(source: Path, folder: Path) -> None:
    """Dequantised to float32, which holds every value of a quantised weight exactly."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_gguf_pytorch_utils

    from stages.export.hf import quiet, require_whole

    quiet()
    bar = modeling_gguf_pytorch_utils.tqdm
    modeling_gguf_pytorch_utils.tqdm = functools.partial(bar, disable=True)  # progress goes to the journal
    place: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True, "trust_remote_code": False}
    try:
        read, found = AutoModelForCausalLM.from_pretrained(
            source.parent, dtype=torch.float32, output_loading_info=True, **place
        )
        tokenizer = AutoTokenizer.from_pretrained(source.parent, **place)
    except Exception as error:  # whatever a file that anybody may have written makes of a reader
        raise InputError(f"adopt.source: {source} cannot be read: {type(error).__name__}: {error}") from None
    require_whole(source, found)
    config = read.config
    del config.quantization_config  # a model that came from GGUF is not saved while it says so
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict(), strict=True)
    model.generation_config = read.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors are written for their owner only


def _try(folder: Path) -> dict[str, Any]:
    """Load it as evaluation does and let it read a line."""
    from stages.scored_model import load_adopted

    try:
        adopted = load_adopted(folder)
    except InputError as error:
        raise InputError(f"adopt.source: {error}") from None
    model, tokenizer = adopted.model, adopted.tokenizer
    if not isinstance(getattr(model.config, "max_position_embeddings", None), int):
        raise InputError(
            f"adopt.source: the model's {CONFIG} does not say how many tokens it takes (max_position_embeddings)"
        )
    rows = model.get_output_embeddings().weight.shape[0]
    if tokenizer.size > rows:
        raise InputError(f"adopt.source: the tokenizer has {tokenizer.size} ids and the model {rows} rows for them")
    _let_it_read(adopted)
    return {
        "architecture": type(model).__name__,
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary_rows": rows,
        "max_length": int(model.config.max_position_embeddings),
        "prefix_id": tokenizer.prefix_id,
        "end_ids": list(tokenizer.end_ids),
        "puts_start": tokenizer.puts_start,
    }


def _let_it_read(adopted: "Adopted") -> None:
    """A line of English, which must have a probability, and whose last token must not change what comes before it: of
    a model that sees ahead every score would be a good one.
    """
    import math

    import torch

    scorer = adopted.scorer(batch_tokens=512)
    tokens = list(adopted.tokenizer.encode(TEXT))[: scorer.model.max_length]
    try:
        score = scorer.rolling([tokens])[0]
        one, other = (scorer.model.logits(torch.tensor([[*tokens[:-1], last]]), len(tokens)) for last in tokens[-2:])
    except Exception as error:  # whatever a model that is no language model makes of it
        raise InputError(f"adopt.source: the model cannot read a text: {type(error).__name__}: {error}") from None
    if not math.isfinite(score.log_likelihood):
        raise InputError("adopt.source: the model gives no finite probability to a line of English")
    if not torch.allclose(one[:, :-1], other[:, :-1], rtol=1e-4, atol=1e-4):
        raise InputError("adopt.source: the model sees the tokens that come after: it predicts none, and has no scores")
