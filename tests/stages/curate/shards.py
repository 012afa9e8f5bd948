"""Shards as the first pass leaves them, made by hand."""

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.dedup.banding import NearDuplicateSettings
from data.dedup.signatures import sign
from stages.curate.shard import Shard, found_shard
from stages.curate.sieve import Sieve
from stages.curate.tables import DOCUMENTS

SETTINGS = NearDuplicateSettings()


def batch(ids: list[str], texts: list[str], domain: str = "web", source: str = "a.jsonl") -> pa.RecordBatch:
    n = len(ids)
    columns = (ids, texts, [domain] * n, ids, [source] * n, ["en"] * n)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, DOCUMENTS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=DOCUMENTS)


def shard(folder: Path, ids: list[str], texts: list[str] | None = None, domain: str = "web") -> Shard:
    """folder: does not exist yet."""
    documents = batch(ids, texts or [f"text of {name}" for name in ids], domain)
    sieve = Sieve(0, domain, documents, np.zeros(len(ids)))
    sieve.enter()
    folder.parent.mkdir(parents=True, exist_ok=True)
    sieve.write(folder, partial(sign, settings=SETTINGS))
    return found_shard(folder)
