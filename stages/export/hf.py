"""The Hugging Face form: safetensors, config.json, generation_config.json and the tokenizer, as AutoModelForCausalLM
and AutoTokenizer read them.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages.export.tokenizer import write_tokenizer


def save(model: Any, tokenizer_model: Path, directory: Path, *, eos_id: int, dtype: str = "float32") -> None:
    """Write `model` (transformers, float32) and its tokenizer. `directory` must not hold files yet.

    Generation starts from, and ends with, the end-of-document token: in training it stands before every document.
    """
    import torch
    from transformers import GenerationConfig

    directory.mkdir(parents=True, exist_ok=True)
    assert not any(directory.iterdir()), directory
    shipped = copy.deepcopy(model).to(getattr(torch, dtype))
    shipped.config.bos_token_id = shipped.config.eos_token_id = eos_id
    shipped.generation_config = GenerationConfig(bos_token_id=eos_id, eos_token_id=eos_id, pad_token_id=eos_id)
    quiet()
    shipped.save_pretrained(directory)
    for path in directory.iterdir():
        path.chmod(0o644)  # safetensors are written for their owner only
    config = shipped.config
    write_tokenizer(
        tokenizer_model, directory, vocabulary_rows=config.vocab_size, max_length=config.max_position_embeddings
    )


def load(directory: Path) -> Any:
    """The model of a saved form: float32, on the CPU, in eval mode. Reads safetensors only and runs no code of the
    folder. Raises InputError if weights are missing.
    """
    import torch
    from transformers import AutoModelForCausalLM

    quiet()
    model, found = AutoModelForCausalLM.from_pretrained(
        directory,
        dtype=torch.float32,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    require_whole(directory, found)
    return model.eval()


def require_whole(path: Path, found: Mapping[str, Any]) -> None:
    """`found`: loading info of transformers, which fills up with random numbers what a file does not give."""
    missing = sorted(found["missing_keys"])
    if missing:
        raise InputError(f"{path} does not give the weights of {len(missing)} tensors, {missing[0]} among them")


def quiet() -> None:
    """A stage does not print: no bars and no advice from transformers."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
