"""The files of a model: which are taken, and which are never opened. Weights are safetensors or GGUF; a pickle is left
where it is, and so is code, and so is what lies outside of the model's folder.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data.errors import InputError

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
PATTERNS = (
    CONFIG,
    "generation_config.json",
    "*.safetensors",
    INDEX,
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
    for path in found:
        _refuse_outside(path)
    _refuse_code(source / CONFIG)
    if INDEX in names and any("/" in str(name) for name in _read(source / INDEX).get("weight_map", {}).values()):
        raise InputError(f"adopt.source: {source / INDEX} names files outside of the model's folder")
    return found


def _refuse_outside(path: Path) -> None:
    """A link may lead to another file of the folder, and in the cache of the hub to where that keeps its files."""
    folder = path.parent.resolve()
    blobs = (folder.parents[1] / "blobs",) if folder.parent.name == "snapshots" else ()
    if not any(path.resolve().is_relative_to(place) for place in (folder, *blobs)):
        raise InputError(f"adopt.source: {path} is a link to outside of the model's folder; copy the file there")


def _refuse_code(config: Path) -> None:
    settings = _read(config)
    of_hub = any(name.endswith("_implementation") and "/" in str(value) for name, value in _settings(settings))
    if of_hub or ("auto_map" in settings and "model_type" not in settings):
        raise InputError(f"adopt.source: {config} asks for code of its own, which is not run")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"adopt.source: {path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"adopt.source: {path} cannot be read: it is no JSON object")
    return found


def _settings(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Of all tables. An implementation with a slash in its name is a kernel that transformers fetches from the hub."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _settings(value)
        else:
            yield name, value
