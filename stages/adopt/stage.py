"""The stage: take the files, or write a GGUF file's content in Hugging Face's form; load, and try once."""

import functools
import shutil
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages.adopt.config import AdoptConfig
from stages.adopt.files import PATTERNS, model_files
from stages.base import Facts, Inputs
from stages.files import tree
from stages.journal import Journal

FORM, HUB = "hf", "safetensors from the hub"
TEXT = "The quick brown fox jumps over the lazy dog.\n"


def run(config: AdoptConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    """Keep the model under hf/. Raises InputError for one that transformers cannot read without code of its own, whose
    weights are incomplete, or whose tokenizer has ids that it has no rows for.
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

    from stages.export.hf import quiet

    quiet()
    bar = modeling_gguf_pytorch_utils.tqdm
    modeling_gguf_pytorch_utils.tqdm = functools.partial(bar, disable=True)  # progress goes to the journal
    place: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True, "trust_remote_code": False}
    try:
        read = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **place)
        tokenizer = AutoTokenizer.from_pretrained(source.parent, **place)
    except (ValueError, KeyError, OSError, NotImplementedError, IndexError) as error:
        raise InputError(f"adopt.source: {source} cannot be read: {type(error).__name__}: {error}") from None
    config = read.config
    del config.quantization_config  # a model that came from GGUF is not saved while it says so
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)  # what the file does not give must show
    model.load_state_dict(read.state_dict(), strict=True)
    model.generation_config = read.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors are written for their owner only


def _try(folder: Path) -> dict[str, Any]:
    """Load it as evaluation does and let it read a line."""
    import math

    from stages.scored_model import load_adopted

    adopted = load_adopted(folder)
    model, tokenizer = adopted.model, adopted.tokenizer
    rows = model.get_output_embeddings().weight.shape[0]
    if tokenizer.size > rows:
        raise InputError(f"adopt.source: the tokenizer has {tokenizer.size} ids and the model {rows} rows for them")
    score = adopted.scorer(batch_tokens=512).rolling([tokenizer.encode(TEXT)])[0]
    if not math.isfinite(score.log_likelihood):
        raise InputError(
            "adopt.source: the model gives no finite probability to a line of English: weights are missing"
        )
    parameters = {id(parameter): parameter for parameter in model.parameters()}.values()
    return {
        "architecture": type(model).__name__,
        "num_parameters": sum(parameter.numel() for parameter in parameters),
        "vocabulary_rows": rows,
        "max_length": int(model.config.max_position_embeddings),
        "prefix_id": tokenizer.prefix_id,
        "end_ids": list(tokenizer.end_ids),
        "puts_start": tokenizer.puts_start,
    }
