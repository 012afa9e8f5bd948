"""Which model to adopt (`[adopt]`), and what of it enters the key: the content of its files, or the commit."""

import re
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages.adopt.files import model_files
from stages.config import StageConfig, runtime
from stages.files import sha256_file
from stages.store import Store

COMMIT = re.compile(r"[0-9a-f]{40}")


class AdoptConfig(StageConfig):
    """A model that was trained elsewhere."""

    source: str = runtime(
        "",
        description="A folder in Hugging Face's form (safetensors), a .gguf file, or the name of a repository on the "
        "Hugging Face hub",
    )
    revision: str = runtime("", description="Of a repository on the hub: the commit, 40 hex digits")


def externals(config: AdoptConfig, store: Store) -> dict[str, Any]:
    """The sha256 of each file that is taken, or the repository's commit. Raises InputError if there is nothing to take,
    or a name on the hub stands without a commit, which may hold another model tomorrow.
    """
    if not config.source:
        return {}
    path = Path(config.source)
    if path.is_file() or path.is_dir():
        return {"files": {file.name: sha256_file(file) for file in model_files(path)}}
    if config.source.count("/") != 1 or path.is_absolute() or config.source.startswith("."):
        raise InputError(f"adopt.source: there is no folder and no file {config.source}")
    if not COMMIT.fullmatch(config.revision):
        raise InputError(
            f"adopt.revision: there is no folder {config.source}; if it is a repository on the hub, give the commit "
            "to take, 40 hex digits"
        )
    return {"hub": {"repository": config.source, "revision": config.revision}}
