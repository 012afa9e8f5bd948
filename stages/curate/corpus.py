"""All documents of a run as columns of numbers, in the order of reading, and what became of each.

This is what the main process holds, about 60 bytes a document; texts and names stay in the shards' files.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.dedup.signatures import DocumentShard
from stages.curate.known import KnownShard
from stages.curate.shard import Shard, column
from stages.curate.work import read_arrow, whole_file, write_arrow

DIRECTORY = pa.schema([("texts", pa.string()), ("num_documents", pa.int64())])
RENAMED = pa.schema([("row", pa.int64()), ("name", pa.string())])
KEPT = 0  # no fate
IDS_IN_MEMORY = 64  # columns of names that a process keeps


class Corpus:
    """known: documents of corpora that were curated before; they stand in front of the rows of the own shards in what
    `everything` gives, and are never dropped."""

    def __init__(self, shards: Sequence[Shard], known: Sequence[KnownShard]) -> None:
        self.shards = [shard for shard in shards if shard.num_documents]
        self.known = list(known)
        self.first = np.cumsum([0, *(shard.num_documents for shard in self.shards)])
        self.num_documents = int(self.first[-1])
        self.num_known = sum(shard.num_documents for shard in known)
        self.num_bytes, self.quality = self._rows(num_bytes=np.int64, quality=np.float64)
        self.heldout = np.zeros(self.num_documents, bool)
        self.fates: list[str] = []
        self.fate = np.zeros(self.num_documents, np.uint8)
        self.score = np.full(self.num_documents, np.nan)
        self.survivor = np.full(self.num_documents, -1, np.int64)

    @property
    def alive(self) -> np.ndarray:
        return self.fate == KEPT

    def keys(self, name: str) -> np.ndarray:
        """uint64[num_documents]: id_hash or group_hash."""
        return self._rows(**{name: np.uint64})[0]

    def domains(self) -> tuple[list[str], np.ndarray]:
        """The names of the domains, in order, and the place of each document's domain among them."""
        names = sorted({shard.domain for shard in self.shards})
        places = [names.index(shard.domain) for shard in self.shards]
        return names, np.repeat(np.array(places, np.int64), [shard.num_documents for shard in self.shards])

    @property
    def planted(self) -> np.ndarray:
        """bool[num_documents]: which documents are neither held out nor compared with any other."""
        return np.repeat([shard.planted for shard in self.shards], [shard.num_documents for shard in self.shards])

    def place(self, row: int) -> tuple[Shard, int]:
        """The shard of a row and its place in it."""
        number = int(np.searchsorted(self.first, row, side="right")) - 1
        return self.shards[number], row - int(self.first[number])

    def rows_of(self, number: int) -> slice:
        """The rows of a shard."""
        return slice(int(self.first[number]), int(self.first[number + 1]))

    def document_shards(self) -> list[DocumentShard]:
        """Known documents first, then the own ones, for the search for duplicates."""
        own = [
            DocumentShard(texts=shard.texts_path, signatures=shard.signatures_path, num_documents=shard.num_documents)
            for shard in self.shards
        ]
        return [shard.documents for shard in self.known] + own

    def drop(self, reason: str, rows: np.ndarray, score: np.ndarray, survivor: np.ndarray) -> None:
        """Give the rows (int64[k]) their fate. survivor: int64[k], places in `document_shards`."""
        if not len(rows):
            return
        assert (self.fate[rows] == KEPT).all(), "a document has one fate"
        if reason not in self.fates:
            self.fates.append(reason)
        self.fate[rows] = self.fates.index(reason) + 1
        self.score[rows], self.survivor[rows] = score, survivor

    def _rows(self, **columns: type) -> tuple[np.ndarray, ...]:
        """Columns of `tables.ROWS`, by name, of the given types."""
        found: tuple[np.ndarray, ...] = tuple(np.empty(self.num_documents, dtype) for dtype in columns.values())
        for number, shard in enumerate(self.shards):
            for values, of_shard in zip(found, shard.rows(*columns), strict=True):
                values[self.rows_of(number)] = of_shard
        return found


@dataclass(frozen=True, kw_only=True)
class Directory:
    """The names of all documents, known and own, by their place in `Corpus.document_shards`; for tasks elsewhere."""

    folder: Path

    def write(self, corpus: Corpus, renamed: dict[int, str]) -> None:
        """renamed: own row -> its name, where that is not the one that its shard has."""
        shards = corpus.document_shards()
        rows = sorted(renamed)
        lengths = [shard.num_documents for shard in shards]
        tables = {
            "shards.arrow": pa.table([[str(shard.texts) for shard in shards], lengths], schema=DIRECTORY),
            "renamed.arrow": pa.table(
                [[corpus.num_known + row for row in rows], [renamed[row] for row in rows]], schema=RENAMED
            ),
        }
        for name, table in tables.items():
            with whole_file(self.folder / name, written_anew=True) as path:
                write_arrow(path, table)

    def names(self, places: np.ndarray) -> pa.StringArray:
        """The ids of documents. places: int64[k]."""
        paths, first, _, _ = self._open()
        if not len(places):
            return pa.array([], pa.string())
        wanted, inverse = np.unique(places, return_inverse=True)
        names = self.renamed(ids_at(paths, first, wanted), wanted)
        return names.take(pa.array(inverse))

    def renamed(self, names: pa.StringArray, places: np.ndarray) -> pa.StringArray:
        """The ids of documents whose shards have `names` for them. places: int64[k]."""
        _, _, rows, new = self._open()
        at = np.searchsorted(rows, places)
        changed = at < len(rows)
        changed[changed] = rows[at[changed]] == places[changed]
        if not changed.any():
            return names
        return pc.replace_with_mask(names, pa.array(changed), new.take(pa.array(at[changed])))

    def _open(self) -> tuple[list[str], np.ndarray, np.ndarray, pa.StringArray]:
        return _opened(self.folder, (self.folder / "renamed.arrow").stat().st_mtime_ns)


def ids_of(texts: Path) -> pa.StringArray:
    """The column of names of a shard of a run or of a known corpus."""
    if texts.suffix == ".parquet":
        import pyarrow.parquet as pq

        return column(pq.read_table(texts, columns=["id"]), "id").cast(pa.string())
    return column(read_arrow(texts), "id")


def ids_at(texts: Sequence[Path | str], first: np.ndarray, places: np.ndarray) -> pa.StringArray:
    """The ids of documents as their shards have them. texts: of all shards. first: int64[shards + 1], the place of the
    first document of each. places: int64[k], ascending."""
    ends = np.searchsorted(places, first)
    parts = [
        _own_ids(texts[number], os.stat(texts[number]).st_mtime_ns).take(
            pa.array(places[ends[number] : ends[number + 1]] - first[number])
        )
        for number in np.flatnonzero(np.diff(ends)).tolist()
    ]
    return pa.concat_arrays(parts or [pa.array([], pa.string())])


@lru_cache(maxsize=IDS_IN_MEMORY)
def _own_ids(texts: Path | str, written: int) -> pa.StringArray:
    """A copy, which keeps no file mapped: nearly every shard is asked for the names of survivors in each other one."""
    ids = ids_of(Path(texts))
    return ids.take(pa.array(np.arange(len(ids))))


@lru_cache(maxsize=2)
def _opened(folder: Path, written: int) -> tuple[list[str], np.ndarray, np.ndarray, pa.StringArray]:
    shards, renamed = read_arrow(folder / "shards.arrow"), read_arrow(folder / "renamed.arrow")
    first = np.cumsum([0, *shards["num_documents"].to_pylist()])
    return shards["texts"].to_pylist(), first, np.asarray(column(renamed, "row")), column(renamed, "name")


def unique_names(corpus: Corpus, taken: np.ndarray) -> dict[int, str]:
    """Ids are unique in a corpus: one that is taken gets a number. Returns row -> its new name, of the rows that need
    one. taken: uint64, keys of further names that are not free."""
    keys = corpus.keys("id_hash")
    in_order = np.sort(keys)  # much faster than an order of rows, which is needed of few
    several = in_order[1:][in_order[1:] == in_order[:-1]]
    repeats = np.isin(keys, taken) if len(taken) else np.zeros(len(keys), bool)
    if len(several):
        alike = np.flatnonzero(np.isin(keys, several))
        order = alike[np.argsort(keys[alike], kind="stable")]
        repeats[order[1:]] |= keys[order[1:]] == keys[order[:-1]]
    rows = np.flatnonzero(repeats)
    if not len(rows):
        return {}
    names = ids_at([shard.texts_path for shard in corpus.shards], corpus.first, rows).to_pylist()
    return _numbered(rows, names, np.union1d(keys, taken))


def _numbered(rows: np.ndarray, names: Sequence[str], taken: np.ndarray) -> dict[int, str]:
    """id~2, id~3, … in the order of the rows; a name whose key is taken is passed over."""
    from data.text.keys import hash_keys

    used: set[str] = set()
    numbers: dict[str, int] = {}
    found = {}
    for row, name in zip(rows.tolist(), names, strict=True):
        number = numbers.get(name, 1)
        free = False
        while not free:
            number += 1
            candidate = f"{name}~{number}"
            (key,) = hash_keys(pa.array([candidate]))
            at = np.searchsorted(taken, key)
            free = candidate not in used and not (at < len(taken) and taken[at] == key)
        numbers[name] = number
        used.add(candidate)
        found[row] = candidate
    return found
