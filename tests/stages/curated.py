"""Small corpora and the curate stage on them, for the tests of the stage."""

import json
import random
from pathlib import Path

import pyarrow.parquet as pq

from stages.base import Job, execute
from stages.curate import STAGE, CurateConfig, Source
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


def rows(artifact: Artifact, name: str) -> list[dict]:
    return pq.read_table(artifact.path / name).to_pylist()


def dropped(artifact: Artifact) -> dict[str, tuple[str, str]]:
    return {row["id"]: (row["reason"], row["detail"]) for row in rows(artifact, "dropped.parquet")}
