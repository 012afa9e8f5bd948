"""The kept documents as files of the artifact, with the index that a later run compares its documents by; and the
files in which the records of all shards come together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from stages.curate.artifact import FILE_BYTES, FILES, HELDOUT, TRAIN, file_path, index_path
from stages.curate.corpus import Corpus, Directory
from stages.curate.shard import Shard, column
from stages.curate.tables import COMPRESSION, DOCUMENTS
from stages.curate.work import read_arrow, whole_file

REPEATED_COLUMNS = ["domain", "source", "language"]  # a dictionary of the others would be tried and thrown away


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Documents of a shard that go into one file. rows: int64, ascending. place: of its first document in the
    directory."""

    shard: Shard
    rows: np.ndarray
    place: int


@dataclass(frozen=True, kw_only=True)
class OutputFile:
    """One file of documents of a domain, in the order of reading."""

    split: str
    domain: str
    number: int
    pieces: tuple[Piece, ...]

    @property
    def num_documents(self) -> int:
        return sum(len(piece.rows) for piece in self.pieces)


def plan_files(corpus: Corpus) -> Iterator[OutputFile]:
    """The files of the artifact, of whole shards' kept documents; see `artifact` for their sizes."""
    names, _ = corpus.domains()
    least, most = FILE_BYTES
    file_bytes = min(max(-(-int(corpus.num_bytes[corpus.alive].sum()) // FILES), least), most)
    for split, side in ((TRAIN, ~corpus.heldout & corpus.alive), (HELDOUT, corpus.heldout & corpus.alive)):
        for domain in names:
            pieces, sizes = [], []
            for number, shard in enumerate(corpus.shards):
                if shard.domain != domain:
                    continue
                rows = np.flatnonzero(side[corpus.rows_of(number)])
                if not len(rows):
                    continue
                first = int(corpus.first[number])
                pieces.append(Piece(shard=shard, rows=rows, place=corpus.num_known + first))
                sizes.append(int(corpus.num_bytes[first + rows].sum()))
            for number, chosen in enumerate(evenly(sizes, file_bytes)):
                yield OutputFile(split=split, domain=domain, number=number, pieces=tuple(pieces[chosen]))


def evenly(sizes: Sequence[int], most: int) -> list[slice]:
    """Cuts a sequence into as many runs as there are `most` in its sum, each of its equal share or an element more."""
    ends = np.cumsum(sizes, dtype=np.int64)
    if not len(ends):
        return []
    total = max(1, int(ends[-1]))
    num_runs = -(-total // most)
    runs = np.minimum((ends - sizes) * num_runs // total, num_runs - 1)
    cuts = [0, *(np.flatnonzero(np.diff(runs)) + 1).tolist(), len(ends)]
    return [slice(begin, end) for begin, end in pairwise(cuts)]


@dataclass(frozen=True, kw_only=True)
class WriteFile:
    """Writes a file of documents and its index. out: the artifact's folder."""

    directory: Directory
    out: Path

    def __call__(self, made: OutputFile) -> int:
        """Its number of documents."""
        path = file_path(self.out, made.split, made.domain, made.number)
        index = index_path(self.out, made.split, path)
        if not index.exists():
            with whole_file(index) as temporary:
                self._write_index(made, temporary)
        if not path.exists():
            with whole_file(path) as temporary:
                self._write_documents(made, temporary)
        return pq.read_metadata(path).num_rows

    def _write_documents(self, made: OutputFile, path: Path) -> None:
        with pq.ParquetWriter(
            path, DOCUMENTS, compression=COMPRESSION, use_dictionary=REPEATED_COLUMNS, write_statistics=False
        ) as writer:
            for piece in made.pieces:
                documents = chosen_rows(piece.shard.documents(), piece)
                names = self.directory.renamed(column(documents, "id"), piece.place + piece.rows)
                writer.write_table(documents.set_column(0, DOCUMENTS.field("id"), names))

    def _write_index(self, made: OutputFile, path: Path) -> None:
        parts = [chosen_rows(read_arrow(piece.shard.signatures_path), piece) for piece in made.pieces]
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, parts[0].schema) as writer:
            for part in parts:
                writer.write(part)


@dataclass(frozen=True)
class WriteRecords:
    """Writes one file of what is on record of all shards. write: see `audit`. folders: of the records, of which the
    files `name` are taken."""

    write: Callable[[Iterable[pa.Table], Path], None]
    folders: tuple[Path, ...]
    name: str
    path: Path

    def __call__(self) -> None:
        with whole_file(self.path) as temporary:
            self.write((read_arrow(folder / self.name) for folder in self.folders), temporary)


def chosen_rows(table: pa.Table, piece: Piece) -> pa.Table:
    """The rows of a piece."""
    if len(piece.rows) == table.num_rows:
        return table
    keep = np.zeros(table.num_rows, bool)
    keep[piece.rows] = True
    return table.filter(pa.array(keep))
