"""A shard: documents of one domain of one source in a folder of the work directory, as much as a task holds in memory.

| file | what |
|---|---|
| texts.arrow | the documents, columns of `tables.DOCUMENTS` |
| rows.arrow | a few numbers of each, `tables.ROWS` |
| signatures.arrow | what duplicates are found by, `data.dedup.signatures` |
| dropped.arrow, samples.arrow, tally.arrow | the records that this step read and did not pass on, see `audit` |
| counts.json | what else was counted |
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.canaries import DOMAIN as CANARY_DOMAIN
from stages.curate.work import read_arrow

TEXTS, ROWS_FILE, SIGNATURES = "texts.arrow", "rows.arrow", "signatures.arrow"
DROPPED_FILE, SAMPLES_FILE, TALLY_FILE, COUNTS = "dropped.arrow", "samples.arrow", "tally.arrow", "counts.json"

DONE = "done"  # of a part: all its shards are there


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Where the documents are that a task works on. name: unique in the work directory, in the order of reading."""

    folder: Path
    name: str
    source_number: int
    domain: str
    num_documents: int

    def documents(self, *columns: str) -> pa.Table:
        """Columns of the documents, mapped into memory, as one chunk each."""
        table = read_arrow(self.folder / TEXTS)
        return (table.select(list(columns)) if columns else table).combine_chunks()

    def rows(self, *columns: str) -> list[np.ndarray]:
        """Columns of `tables.ROWS`."""
        table = read_arrow(self.folder / ROWS_FILE)
        return [np.asarray(column(table, name)) for name in columns]

    @property
    def planted(self) -> bool:
        """Whether these are canaries, which reach training as they are."""
        return self.domain == CANARY_DOMAIN

    @property
    def texts_path(self) -> Path:
        return self.folder / TEXTS

    @property
    def signatures_path(self) -> Path:
        return self.folder / SIGNATURES


def column(table: pa.Table, name: str) -> pa.Array:
    """A column of a table of one chunk, as an array."""
    found = table.column(name)
    return found.chunk(0) if found.num_chunks == 1 else pa.concat_arrays(found.chunks or [pa.array([], found.type)])


def finished_shards(folder: Path) -> tuple[list[Path], bool]:
    """The folders of the shards of a part, in order, and whether they are all."""
    entries = sorted(folder.iterdir())
    shards = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    return shards, any(entry.name == DONE for entry in entries)


def found_shard(folder: Path) -> Shard:
    """The shard in a folder."""
    counts = json.loads((folder / COUNTS).read_text())
    return Shard(
        folder=folder,
        name=f"{folder.parent.name}-{folder.name}",
        source_number=counts["source_number"],
        domain=counts["domain"],
        num_documents=counts["documents"],
    )
