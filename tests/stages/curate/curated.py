"""Small corpora and the curate stage on them, for the tests of the stage."""

import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stages.base import Job, execute
from stages.curate import STAGE, CurateConfig, Source
from stages.curate.artifact import domain_paths
from stages.journal import Listener
from stages.store import Artifact, Store


def curate(config: CurateConfig, root: str = ".", listeners: tuple[Listener, ...] = ()) -> Artifact:
    store = Store(Path(root))
    job = Job(stage=STAGE, config=config, externals=STAGE.externals(config, store), inputs={}, label="t")
    return execute(job, store, listeners=listeners)


STEMS = ("river", "mountain", "letter", "garden", "winter", "teacher")


def sentences(rng: random.Random, count: int) -> str:
    """Text that passes for prose: lines of nine made-up words."""

    def word() -> str:
        return rng.choice(STEMS) + "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))

    return "\n".join(" ".join(word() for _ in range(9)).capitalize() + "." for _ in range(count))


def write_jsonl(path: str, records: list[dict]) -> None:
    Path(path).write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def corpus(num_documents: int = 60, seed: int = 0) -> list[dict]:
    rng = random.Random(seed)
    return [{"text": sentences(rng, 8), "id": f"d{i:03}", "from": f"book{i // 3}"} for i in range(num_documents)]


def source(path: str = "a.jsonl", **settings) -> Source:
    return Source(**({"kind": "jsonl", "path": path, "domain": "web", "id_field": "id"} | settings))


def small_batches(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    """Let shards be of so many bytes, or one document."""
    monkeypatch.setattr("stages.curate.parts.BATCH_BYTES", num_bytes)


def rows(artifact: Artifact, name: str) -> list[dict]:
    """Of a file, or of all files of a domain: train/web."""
    path = artifact.path / name
    files = [path] if path.suffix else domain_paths(artifact.path, path.parent.name).get(path.name, [])
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def dropped(artifact: Artifact) -> dict[str, tuple[str, str]]:
    """id -> the reason, and what it repeats or else the detail."""
    return {row["id"]: (row["reason"], row["survivor"] or row["detail"]) for row in rows(artifact, "dropped.parquet")}


def kept_texts(artifact: Artifact, domain: str = "web") -> dict[str, set[str]]:
    """Split -> texts."""
    return {side: {row["text"] for row in rows(artifact, f"{side}/{domain}")} for side in ("train", "heldout")}
