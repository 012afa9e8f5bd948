"""The manifest of an artifact: what it is, what it was made from, and the hashes of what it holds.

`manifest.json` is the last file written into an artifact: present means done, and there is no other status. Its
digest covers what a consumer can see and nothing else: the files that are the same every time, and the facts.
"""

import json
import os
import platform
import subprocess
import sys
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from stages import fingerprint
from stages.files import sha256_file, tree

MANIFEST = "manifest.json"
EVENTS = "events.jsonl"
SCHEMA = 1
RECORDED_PACKAGES = (
    "accelerate",
    "datasets",
    "gguf",
    "lm_eval",
    "numba",
    "numpy",
    "pyarrow",
    "safetensors",
    "sentencepiece",
    "torch",
    "transformers",
)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Record):
    """One file of an artifact. `measured`: its bytes are not the same every time, so the artifact's digest leaves it
    out."""

    path: str
    bytes: int
    digest: str
    measured: bool = False


class InputEntry(_Record):
    """One artifact that went in. `runtime`: recorded only, not part of the key."""

    stage: str
    key: str
    digest: str
    runtime: bool = False


class Manifest(_Record):
    """What stands in manifest.json."""

    schema_version: int = SCHEMA
    stage: str
    revision: int
    label: str
    key: str
    identity: dict[str, Any]
    config: dict[str, Any]
    externals: dict[str, Any]
    inputs: dict[str, tuple[InputEntry, ...]]
    files: tuple[FileEntry, ...]
    facts: dict[str, Any]
    measurements: dict[str, Any]
    provenance: dict[str, Any]
    digest: str


def content_digest(stage: str, files: tuple[FileEntry, ...], facts: dict[str, Any]) -> str:
    """The digest by which an artifact enters the keys of its consumers."""
    stable = [[entry.path, entry.digest] for entry in files if not entry.measured]
    return fingerprint.digest({"stage": stage, "files": stable, "facts": facts})


def hash_files(directory: Path, measured: tuple[str, ...]) -> tuple[FileEntry, ...]:
    """Entries for all files below `directory` but the manifest; `measured` names files and folders."""
    present = [path for path in tree(directory) if path != MANIFEST]
    for name in measured:
        assert any(path == name or path.startswith(f"{name}/") for path in present), (
            f"measured file {name} was not written"
        )
    return tuple(
        FileEntry(
            path=path,
            bytes=(directory / path).stat().st_size,
            digest=sha256_file(directory / path),
            measured=path == EVENTS or any(path == name or path.startswith(f"{name}/") for name in measured),
        )
        for path in present
    )


def read(directory: Path) -> Manifest | None:
    """The manifest of a finished artifact, or None where there is none. A manifest that cannot be read is an error
    that names it."""
    path = directory / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise RuntimeError(
            f"{path} is not a manifest of schema {SCHEMA}; move its folder away and run the stage again\n{error}"
        ) from error


def verify(directory: Path, manifest: Manifest) -> list[str]:
    """What is wrong with an artifact's files, one sentence each; empty when each byte is as it was published."""
    problems = []
    for entry in manifest.files:
        path = directory / entry.path
        if not path.is_file():
            problems.append(f"{entry.path} is missing")
        elif path.stat().st_size != entry.bytes:
            problems.append(f"{entry.path} has {path.stat().st_size} bytes, not {entry.bytes}")
        elif sha256_file(path) != entry.digest:
            problems.append(f"{entry.path} has changed: its sha256 is not the recorded one")
    known = {entry.path for entry in manifest.files} | {MANIFEST}
    problems += [f"{path} was added" for path in tree(directory) if path not in known]
    if content_digest(manifest.stage, manifest.files, manifest.facts) != manifest.digest:
        problems.append(f"{MANIFEST} has been edited: its digest is not that of its files and facts")
    return problems


def provenance() -> dict[str, Any]:
    """How, where and when an artifact is made, as far as this process knows. Nothing of it enters a key or a digest."""
    return {
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "host": platform.node(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": _versions(),
        "git": _git_commit(),
    }


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in RECORDED_PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def _git_commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def to_json(manifest: Manifest) -> str:
    """The text of manifest.json."""
    return json.dumps(manifest.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
