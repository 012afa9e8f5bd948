"""The corpus while it is being curated: shards of documents, and the record of all that was dropped."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.documents import Rejected
from data.quality_rules import Preset
from data.tables import SCHEMA, text_buffers
from stages.executor import map_shards
from stages.journal import Journal

DROPPED_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("domain", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("value", pa.float64()),
        ("num_bytes", pa.int64()),
    ]
)
COMPRESSION = "zstd"

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Shard:
    """Documents of one domain on one side of the held-out split, in a batch of `data.tables.SCHEMA`."""

    batch: pa.RecordBatch
    preset: Preset
    heldout: bool = False

    @property
    def domain(self) -> str:
        return self.batch.column("domain")[0].as_py()

    @property
    def texts(self) -> pa.LargeStringArray:
        return self.batch.column("text")

    @property
    def num_bytes(self) -> np.ndarray:
        """int64[num_rows], of UTF-8 text."""
        return np.diff(text_buffers(self.texts)[1])


@dataclass
class Dropped:
    """Every record that left the corpus, with why."""

    rows: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in DROPPED_SCHEMA.names})
    documents: dict[str, Counter[str]] = field(default_factory=dict)
    num_bytes: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, *, id: str, domain: str, reason: str, detail: str, value: float | None, num_bytes: int) -> None:
        for name, entry in (
            ("id", id),
            ("domain", domain),
            ("reason", reason),
            ("detail", detail),
            ("value", value),
            ("num_bytes", num_bytes),
        ):
            self.rows[name].append(entry)
        self.documents.setdefault(domain, Counter())[reason] += 1
        self.num_bytes.setdefault(domain, Counter())[reason] += num_bytes

    def add_rejected(self, record: Rejected) -> None:
        self.add(
            id=record.id,
            domain=record.domain,
            reason=record.reason,
            detail=record.detail,
            value=None,
            num_bytes=record.num_bytes,
        )

    def table(self) -> pa.Table:
        return pa.table(
            [pa.array(self.rows[entry.name], entry.type) for entry in DROPPED_SCHEMA], schema=DROPPED_SCHEMA
        )

    def biggest_reason(self, domain: str | None = None) -> str:
        """How many records of a domain or of the corpus were dropped, and what took most of them, for a message."""
        total: Counter[str] = Counter()
        for name, reasons in self.documents.items():
            if domain in (None, name):
                total.update(reasons)
        if not total:
            return "none dropped"
        reason, count = min(total.items(), key=lambda entry: (-entry[1], entry[0]))
        return f"{total.total()} dropped, {count} of them as {reason!r}"


@dataclass(frozen=True)
class Drop:
    """A row of a shard that leaves, and why."""

    row: int
    reason: str
    detail: str
    value: float | None


def apply(shards: list[Shard], drops: Sequence[Sequence[Drop]], dropped: Dropped) -> list[Shard]:
    """The shards without the rows that are to go, which are recorded. A shard that becomes empty is gone."""
    left = []
    for shard, leaving in zip(shards, drops, strict=True):
        ids, sizes, domain = shard.batch.column("id"), shard.num_bytes, shard.domain
        stays = np.ones(shard.batch.num_rows, bool)
        for drop in leaving:
            stays[drop.row] = False
            dropped.add(
                id=ids[drop.row].as_py(),
                domain=domain,
                reason=drop.reason,
                detail=drop.detail,
                value=drop.value,
                num_bytes=int(sizes[drop.row]),
            )
        if stays.all():
            left.append(shard)
        elif stays.any():
            left.append(replace(shard, batch=shard.batch.filter(pa.array(stays))))
    return left


def map_with_progress(
    function: Callable[[Item], Result], items: Sequence[Item], *, name: str, workers: int, journal: Journal
) -> list[Result]:
    """`map_shards` that reports how many shards are done."""
    lock = threading.Lock()
    done = 0

    def one(item: Item) -> Result:
        nonlocal done
        result = function(item)
        with lock:
            done += 1
            journal.progress(name, done, len(items), unit="shards")
        return result

    return map_shards(one, items, workers)


def write(shards: Sequence[Shard], path: Path) -> tuple[int, int]:
    """Write the documents of shards as one Parquet file; returns (documents, bytes of text)."""
    documents = num_bytes = 0
    with pq.ParquetWriter(path, SCHEMA, compression=COMPRESSION) as writer:
        for shard in shards:
            writer.write_batch(shard.batch)
            documents += shard.batch.num_rows
            num_bytes += int(shard.num_bytes.sum())
    return documents, num_bytes
