"""Which documents of a corpus make which token shard. It follows from the corpus alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data.shards import shard_name
from stages.curate.artifact import SPLITS, domain_paths


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """Which rows of a corpus file make one shard. text_bytes: their UTF-8 length."""

    split: str
    domain: str
    number: int
    source: Path
    first_row: int
    num_rows: int
    text_bytes: int

    @property
    def path(self) -> str:
        """Relative to the artifact."""
        return f"{self.split}/{shard_name(self.domain, self.number)}"

    def rows(self) -> pa.Table:
        """Columns id and text of the shard's documents; only the row groups that hold them are read."""
        file = pq.ParquetFile(self.source)
        schema = pa.schema([("id", pa.string()), ("text", pa.large_string())])
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        end = self.first_row + self.num_rows
        groups = [g for g in range(len(sizes)) if starts[g] < end and starts[g + 1] > self.first_row]
        if not groups:
            return schema.empty_table()
        table = file.read_row_groups(groups, columns=["id", "text"])
        return table.slice(self.first_row - int(starts[groups[0]]), self.num_rows).cast(schema)


def plan_shards(corpus: Path, shard_bytes: int) -> list[ShardPlan]:
    """Every shard of both splits, in order. Each domain file has at least one, which may be empty."""
    return [
        ShardPlan(
            split=split, domain=domain, number=number, source=path, first_row=first, num_rows=rows, text_bytes=size
        )
        for split in SPLITS
        for domain, path in domain_paths(corpus, split).items()
        for number, (first, rows, size) in enumerate(_row_ranges(path, shard_bytes))
    ]


def _row_ranges(path: Path, shard_bytes: int) -> Iterator[tuple[int, int, int]]:
    """first row, number of rows and text bytes of consecutive shards of at most shard_bytes bytes or one document."""
    lengths = [
        pc.binary_length(batch.column("text")).to_numpy(zero_copy_only=False)
        for batch in pq.ParquetFile(path).iter_batches(columns=["text"])
    ]
    ends = np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]), dtype=np.int64)
    first = before = 0
    while first < len(ends):
        end = max(first + 1, int(np.searchsorted(ends, before + shard_bytes, side="right")))
        yield first, end - first, int(ends[end - 1]) - before
        first, before = end, int(ends[end - 1])
    if not first:
        yield 0, 0, 0
