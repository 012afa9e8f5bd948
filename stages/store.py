"""Where artifacts live: artifacts/<stage>/<label>-<key>/, and the run directories of long stages: runs/<key>/.

An artifact appears by one rename of a finished directory and never changes. Names that begin with a dot are not
artifacts: work directories (.work-<key>), leases (.lease-<key>), what is being removed (.trash-...).
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages import fingerprint, manifest
from stages.errors import StoreConflict
from stages.files import fsync_directory, fsync_file, write_atomic
from stages.lease import Lease, is_held
from stages.manifest import MANIFEST, Manifest

LEASE = ".lease-"
KEY = re.compile(rf"-([0-9a-f]{{{fingerprint.KEY_HEX_DIGITS}}})$")


@dataclass(frozen=True)
class Artifact:
    """A finished artifact: its directory and its manifest."""

    path: Path

    @cached_property
    def manifest(self) -> Manifest:
        found = manifest.read(self.path)
        assert found is not None, f"{self.path} holds no {MANIFEST}"
        return found

    @property
    def stage(self) -> str:
        return self.path.parent.name

    @property
    def key(self) -> str:
        return self.manifest.key

    @property
    def digest(self) -> str:
        return self.manifest.digest

    @property
    def facts(self) -> dict[str, Any]:
        return self.manifest.facts


@dataclass(frozen=True)
class Store:
    """All artifacts and runs below one folder."""

    root: Path

    @property
    def artifacts_path(self) -> Path:
        return self.root / "artifacts"

    def runs_path(self, key: str) -> Path:
        """The run directory of the long stage that builds `key`."""
        return self.root / "runs" / key

    def work_path(self, stage: str, key: str) -> Path:
        """Where an artifact is being built; it survives a kill."""
        return self.artifacts_path / stage / f".work-{key}"

    def lease(self, stage: str, key: str) -> Lease:
        return Lease(self._lease_path(stage, key))

    def is_being_built(self, stage: str, key: str) -> bool:
        return is_held(self._lease_path(stage, key))

    def being_built(self, stage: str) -> list[str]:
        """Keys of the stage that live processes build now."""
        keys = sorted(path.name.removeprefix(LEASE) for path in (self.artifacts_path / stage).glob(f"{LEASE}*"))
        return [key for key in keys if self.is_being_built(stage, key)]

    def find(self, stage: str, key: str) -> Artifact | None:
        """The finished artifact of a key, under whatever label it was made."""
        for path in _subfolders(self.artifacts_path / stage):
            if path.name.endswith(f"-{key}") and _is_artifact(path):
                return Artifact(path)
        return None

    def all(self, stage: str = "") -> Iterator[Artifact]:
        """Every finished artifact, of one stage or of all, in the order of their names."""
        for folder in [self.artifacts_path / stage] if stage else _subfolders(self.artifacts_path):
            for path in _subfolders(folder):
                if KEY.search(path.name) and _is_artifact(path):
                    yield Artifact(path)

    def lookup(self, name: str) -> Artifact:
        """The artifact that a user names by key, the first digits of it, `label-key`, or path. Raises InputError if
        none or several fit."""
        path = Path(name)
        if (path / MANIFEST).exists():
            return Artifact(path)
        found = [
            artifact
            for artifact in self.all()
            if artifact.path.name == path.name or artifact.path.name.rpartition("-")[2].startswith(name)
        ]
        if len(found) != 1:
            which = (
                "no artifact"
                if not found
                else "several artifacts: " + ", ".join(f"{a.stage}/{a.path.name}" for a in found)
            )
            raise InputError(
                f"{name!r} names {which} in {self.artifacts_path}; `python -m stages list` shows what is there"
            )
        return found[0]

    def publish(self, work: Path, made: Manifest, lease: Lease) -> Artifact:
        """Turn a work directory into an artifact. Raises StoreConflict if the key is there with another digest,
        LeaseLost if the lease is not ours."""
        for entry in made.files:
            fsync_file(work / entry.path)
        for folder, _, _ in os.walk(work):
            fsync_directory(Path(folder))
        write_atomic(work / MANIFEST, manifest.to_json(made))
        with lease.confirmed():
            present = self.find(made.stage, made.key)
            if present:
                self.remove(work)
                require_equal(present.manifest, made)
                return present
            final = self.artifacts_path / made.stage / f"{made.label}-{made.key}"
            os.rename(work, final)
            fsync_directory(final.parent)
        return Artifact(final)

    def remove(self, path: Path) -> None:
        """Remove a folder in such an order that a kill never leaves half an artifact under its name."""
        trash = path.with_name(f".trash-{uuid.uuid4().hex}")
        os.rename(path, trash)
        shutil.rmtree(trash)

    def _lease_path(self, stage: str, key: str) -> Path:
        return self.artifacts_path / stage / f"{LEASE}{key}"


def require_equal(present: Manifest, made: Manifest) -> None:
    """Raise StoreConflict, with the fields that differ, unless both manifests describe the same content."""
    if present.digest == made.digest:
        return
    facts = fingerprint.difference(present.facts, made.facts)
    files = fingerprint.difference(
        {e.path: e.digest for e in present.files if not e.measured},
        {e.path: e.digest for e in made.files if not e.measured},
    )
    layout = fingerprint.difference(_circumstances(present), _circumstances(made))
    lines = [f"{made.stage} {made.key} has been built twice with different results; the first one is kept."]
    lines += [f"  {name}: {a!r} at first, {b!r} now" for name, a, b in [*facts, *files][:10]]
    lines += [f"  made under {name}: {a!r} at first, {b!r} now" for name, a, b in layout]
    lines += [] if layout else ["  made under the same versions and layout, so the stage is not deterministic"]
    raise StoreConflict("\n".join(lines))


def _circumstances(made: Manifest) -> dict[str, Any]:
    return {name: made.provenance.get(name) for name in ("rounding", "versions", "python", "machine")}


def _is_artifact(path: Path) -> bool:
    """Whether a folder is an artifact under the name that it was published with: a copy under another name is not."""
    made = manifest.read(path)
    return made is not None and path.name == f"{made.label}-{made.key}"


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
