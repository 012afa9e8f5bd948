"""The files of a model: which are taken, and which are never opened. Weights are safetensors or GGUF; a pickle is left
where it is, and so is code.
"""

import json
from pathlib import Path

from data.errors import InputError

CONFIG = "config.json"
PATTERNS = (
    CONFIG,
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
GGUF = ".gguf"


def model_files(source: Path) -> list[Path]:
    """The files that make up the model at `source`, by name. Raises InputError if it is none that could be read."""
    if source.is_file():
        if source.suffix != GGUF:
            raise InputError(f"adopt.source: {source} is neither a folder nor a {GGUF} file")
        return [source]
    found = sorted({path for pattern in PATTERNS for path in source.glob(pattern) if path.is_file()})
    names = {path.name for path in found}
    if CONFIG not in names:
        raise InputError(
            f"adopt.source: {source} has no {CONFIG}; give the folder that holds the model, or a .gguf file"
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise InputError(
            f"adopt.source: {source} has no .safetensors file; weights in other forms (.bin, .pt) are pickles, which "
            "are not read: save the model again as safetensors"
        )
    _refuse_code(source / CONFIG)
    return found


def _refuse_code(config: Path) -> None:
    try:
        settings = json.loads(config.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"adopt.source: {config} cannot be read: {error}") from None
    if "auto_map" in settings and "model_type" not in settings:
        raise InputError(f"adopt.source: {config} asks for code of its own, which is not run")
