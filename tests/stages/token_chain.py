"""A corpus as curate leaves it, and the stages behind it, run in a store of the test's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eval.suites import digest
from stages.base import Facts, Inputs, Job, Stage, execute
from stages.config import StageConfig
from stages.curate.artifact import file_path
from stages.journal import Event, Journal
from stages.pretokenize import STAGE as PRETOKENIZE
from stages.pretokenize import PretokenizeConfig
from stages.store import Artifact, Store
from stages.suites import SuitesConfig
from stages.tokenizer import STAGE as TOKENIZER
from stages.tokenizer import TokenizerConfig
from tests.data.texts import AWKWARD, code, prose

Texts = Mapping[str, Mapping[str, Sequence[str]]]


def small_corpus() -> dict[str, dict[str, list[str]]]:
    """Split -> domain -> texts; uneven, with awkward text, an empty document and a domain that has nothing held out."""
    return {
        "train": {"prose": list(prose()[:40]), "code": [*code()[:4], *AWKWARD], "tiny": ["one", "", "three"]},
        "heldout": {"prose": list(prose()[40:46]), "code": [code()[5]], "tiny": []},
    }


class CorpusConfig(StageConfig):
    texts: dict[str, dict[str, tuple[str, ...]]]
    rows_in_group: int


def _write_corpus(config: CorpusConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    counts: dict[str, dict[str, int]] = {}
    for split, domains in config.texts.items():
        (out / split).mkdir()
        for domain, texts in domains.items():
            columns = {
                "id": pa.array([f"{split}/{domain}/{i}" for i in range(len(texts))], pa.string()),
                "text": pa.array(texts, pa.large_string()),
                "domain": pa.array([domain] * len(texts), pa.string()),
                "group": pa.array(["g"] * len(texts), pa.string()),
                "source": pa.array(["s"] * len(texts), pa.string()),
            }
            table, most = pa.table(columns), max(1, len(texts) * 2 // 3)
            for number, first in enumerate(range(0, max(1, len(texts)), most)):
                path = file_path(out, split, domain, number)
                pq.write_table(table.slice(first, most), path, row_group_size=config.rows_in_group)
            counts.setdefault(domain, {})[f"{split}_documents"] = len(texts)
            counts[domain][f"{split}_bytes"] = sum(len(text.encode()) for text in texts)
    tasks = {"indent": {"items": 150, "too_short": 150, "documents": 0}}
    return Facts(facts={"domains": counts, "decontamination": {"heldout": {}, "tasks": tasks, "waived": []}})


class ForeignConfig(StageConfig):
    files: dict[str, str]
    padded_vocabulary_size: int


def _write_foreign(config: ForeignConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    for name, content in config.files.items():
        (out / name).write_bytes(bytes.fromhex(content))
    return Facts(facts={"padded_vocabulary_size": config.padded_vocabulary_size})


CORPUS = Stage(
    name="curate",
    revision=1,
    config=CorpusConfig,
    inputs={},
    run=_write_corpus,
    externals=lambda config, store: {"suites": digest(SuitesConfig().all_names)},
)
FOREIGN = Stage(name="tokenizer", revision=1, config=ForeignConfig, inputs={}, run=_write_foreign)


def run_stage(
    store: Store, stage: Stage, config: StageConfig, inputs: dict[str, Artifact], events: list[Event] | None = None
) -> Artifact:
    named = {name: (artifact,) for name, artifact in inputs.items()}
    job = Job(stage=stage, config=config, externals=stage.externals(config, store), inputs=named, label="test")
    return execute(job, store, listeners=(events.append,) if events is not None else ())


def corpus(store: Store, texts: Any = None, rows_in_group: int = 7) -> Artifact:
    return run_stage(store, CORPUS, CorpusConfig(texts=texts or small_corpus(), rows_in_group=rows_in_group), {})


def tokenizer(store: Store, of: Artifact, **settings: Any) -> Artifact:
    config = TokenizerConfig(**({"size": 512, "sample_bytes": 300_000} | settings))
    return run_stage(store, TOKENIZER, config, {"corpus": of})


def foreign_tokenizer(store: Store, files: Mapping[str, bytes], padded_vocabulary_size: int) -> Artifact:
    """A tokenizer artifact of files that were made elsewhere."""
    contents = {name: content.hex() for name, content in files.items()}
    config = ForeignConfig(files=contents, padded_vocabulary_size=padded_vocabulary_size)
    return run_stage(store, FOREIGN, config, {})


def pretokenize(
    store: Store, of: Artifact, by: Artifact, events: list[Event] | None = None, **settings: Any
) -> Artifact:
    config = PretokenizeConfig(**({"shard_bytes": 60_000} | settings))
    return run_stage(store, PRETOKENIZE, config, {"corpus": of, "tokenizer": by}, events)
