"""Which documents of a corpus make which token shard. It follows from the corpus alone, whatever files it is in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.shards.files import shard_name
from stages.curate.artifact import SPLITS, domain_paths

ROWS = pa.schema([("id", pa.string()), ("text", pa.large_string())])


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """Which rows of a domain make one shard. files: those that hold them. first_row: in the first of the files.
    text_bytes: their UTF-8 length."""

    split: str
    domain: str
    number: int
    files: tuple[Path, ...]
    first_row: int
    num_rows: int
    text_bytes: int

    @property
    def path(self) -> str:
        """Relative to the artifact."""
        return f"{self.split}/{shard_name(self.domain, self.number)}"

    def rows(self) -> pa.Table:
        """Columns id and text of the shard's documents; only the row groups that hold them are read."""
        first, left, parts = self.first_row, self.num_rows, [ROWS.empty_table()]
        for path in self.files:
            with pq.ParquetFile(path) as file:
                taken = min(left, file.metadata.num_rows - first)
                parts.append(_read(file, first, taken))
            first, left = 0, left - taken
        assert left == 0, f"{self.path}: {left} rows are missing"
        return pa.concat_tables(parts)


def _read(file: pq.ParquetFile, first_row: int, num_rows: int) -> pa.Table:
    """Some rows of a file."""
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    starts = np.cumsum([0, *sizes])
    end = first_row + num_rows
    groups = [group for group in range(len(sizes)) if starts[group] < end and starts[group + 1] > first_row]
    if not groups:
        return ROWS.empty_table()
    table = file.read_row_groups(groups, columns=["id", "text"])
    return table.slice(first_row - int(starts[groups[0]]), num_rows).cast(ROWS)


def plan_shards(corpus: Path, shard_bytes: int) -> list[ShardPlan]:
    """Every shard of both splits, in order. Each domain has at least one, which may be empty."""
    return [
        plan
        for split in SPLITS
        for domain, paths in domain_paths(corpus, split).items()
        for plan in _domain_plans(split, domain, paths, shard_bytes)
    ]


def _domain_plans(split: str, domain: str, paths: Sequence[Path], shard_bytes: int) -> Iterator[ShardPlan]:
    lengths = [_text_lengths(path) for path in paths]
    first_of_file = np.cumsum([0, *map(len, lengths)])
    for number, (first, rows, size) in enumerate(_row_ranges(np.concatenate(lengths), shard_bytes)):
        first_file = int(np.searchsorted(first_of_file, first, side="right")) - 1 if rows else 0
        last_file = int(np.searchsorted(first_of_file, first + rows, side="left"))
        yield ShardPlan(
            split=split,
            domain=domain,
            number=number,
            files=tuple(paths[first_file:last_file]),
            first_row=first - int(first_of_file[first_file]),
            num_rows=rows,
            text_bytes=size,
        )


def _text_lengths(path: Path) -> np.ndarray:
    """int64[n]: bytes of each text of a file."""
    import pyarrow.compute as pc

    with pq.ParquetFile(path) as file:
        lengths = [pc.binary_length(batch.column("text")) for batch in file.iter_batches(columns=["text"])]
    return np.concatenate([np.zeros(0, np.int64), *(part.to_numpy(zero_copy_only=False) for part in lengths)])


def _row_ranges(lengths: np.ndarray, shard_bytes: int) -> Iterator[tuple[int, int, int]]:
    """first row, number of rows and text bytes of consecutive shards of at most shard_bytes bytes or one document."""
    ends = np.cumsum(lengths, dtype=np.int64)
    first = before = 0
    while first < len(ends):
        end = max(first + 1, int(np.searchsorted(ends, before + shard_bytes, side="right")))
        yield first, end - first, int(ends[end - 1]) - before
        first, before = end, int(ends[end - 1])
    if not first:
        yield 0, 0, 0
