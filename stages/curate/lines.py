"""Lines that stand in many documents (menus, notices, licences) are removed from all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.dedup.repeated_lines import count_lines, merge_counts, remove_lines
from data.dedup.signatures import sign
from stages.curate.accounting import Step
from stages.curate.config import CurateConfig
from stages.curate.shard import Shard, column, found_shard
from stages.curate.sieve import Sieve
from stages.curate.tables import DOCUMENTS
from stages.curate.work import read_arrow, whole_file, write_arrow

ONLY_REPEATED = "quality: only repeated lines"
MERGED_TOGETHER = 1 << 24  # lines, of 16 bytes


@dataclass(frozen=True, kw_only=True)
class CountLines:
    """Writes in how many documents of a shard each line stands."""

    config: CurateConfig
    folder: Path

    def __call__(self, shard: Shard) -> Path:
        path = self.folder / f"{shard.name}.arrow"
        if not path.exists():
            texts = column(shard.documents("text"), "text")
            hashes, counts = count_lines(texts, self.config.repeated_line_characters)
            with whole_file(path) as temporary:
                write_arrow(temporary, pa.table({"hash": pa.array(hashes), "documents": pa.array(counts)}))
        return path


@dataclass(frozen=True, kw_only=True)
class RemoveLines:
    """Writes a shard anew without the lines of a table."""

    config: CurateConfig
    table: Path
    folder: Path

    def __call__(self, shard: Shard) -> Shard:
        folder = self.folder / shard.name
        if not folder.exists():
            documents = shard.documents()
            batch = pa.RecordBatch.from_arrays([column(documents, name) for name in DOCUMENTS.names], schema=DOCUMENTS)
            (quality,) = shard.rows("quality")
            sieve = Sieve(shard.source_number, shard.domain, batch, quality)
            table = np.asarray(column(read_arrow(self.table), "hash"))
            texts, removed_bytes, _ = remove_lines(sieve.texts, table, self.config.repeated_line_characters)
            before = sieve.num_bytes
            sieve.edit(texts, "repeated lines")
            sieve.drop(
                _is_blank(sieve.texts) & (removed_bytes > 0),
                Step.QUALITY,
                lambda rows: pa.repeat(pa.scalar(ONLY_REPEATED, pa.string()), len(rows)),
                detail=lambda rows: pa.array([f"{size} bytes of them" for size in before[rows].tolist()], pa.string()),
            )
            sieve.write(folder, partial(sign, settings=self.config.near_duplicates()))
        return found_shard(folder)


def too_frequent(counted: Sequence[Path], most_documents: int, path: Path) -> Path:
    """The table, written to `path`, of the lines that stand in more than `most_documents` documents of all shards. It
    is made for one range of hashes after another, so that little is in memory."""
    if not path.exists():
        tables = [read_arrow(part) for part in counted]
        parts = [(np.asarray(column(table, "hash")), np.asarray(column(table, "documents"))) for table in tables]
        num_ranges = 1 + sum(len(hashes) for hashes, _ in parts) // MERGED_TOGETHER
        bounds = [number * 2**64 // num_ranges for number in range(1, num_ranges)]
        ends = [np.searchsorted(hashes, np.array(bounds, np.uint64)).tolist() for hashes, _ in parts]
        found = []
        for number in range(num_ranges):
            chosen = []
            for (hashes, counts), cuts in zip(parts, ends, strict=True):
                mine = slice(cuts[number - 1] if number else 0, cuts[number] if number < len(cuts) else None)
                chosen.append((hashes[mine], counts[mine]))
            hashes, counts = merge_counts(chosen)
            found.append(hashes[counts > most_documents])
        with whole_file(path) as temporary:
            write_arrow(temporary, pa.table({"hash": pa.array(np.concatenate(found))}))
    return path


def _is_blank(texts: pa.LargeStringArray) -> np.ndarray:
    return np.asarray(pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts)))
