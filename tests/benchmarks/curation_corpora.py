"""The texts of `make bench-curate`, in folders of Parquet files (id, text), some with the truth about duplicates."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.near_duplicate_text import (
    EXACT,
    NEAR,
    SPACES,
    TRUTH,
    Copy,
    Planted,
    plant,
    read_texts,
    read_truth,
    write,
)
from tests.benchmarks.peers.curation.measured import parquet_files

NEAR_DUPLICATES = Path("../shared/data/near_duplicates")
KINDS = {"near": NEAR, "exact": EXACT, "exact_ws": SPACES}
SEED = 1


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """name: what its figures are called after. num_bytes: of text."""

    name: str
    folder: Path
    documents: int
    num_bytes: int

    def truth(self) -> tuple[Copy, ...]:
        return read_truth(self.folder)


def write_planted(folder: Path, pool: Sequence[str], documents: int) -> Corpus:
    """Documents made of the sentences of `pool`; see near_duplicate_text.py."""
    return _write(folder, "planted", plant(pool, documents, SEED))


def write_near_duplicates(folder: Path) -> Corpus | None:
    """Real documents with planted duplicates of NEAR_DUPLICATES, where that is present."""
    if not NEAR_DUPLICATES.is_dir():
        return None
    tables = [pq.read_table(path, columns=["id", "text"]) for path in parquet_files(NEAR_DUPLICATES)]
    table = pa.concat_tables(tables)
    truth = tuple(
        Copy(id=str(line["id"]), original=str(line["orig"]), kind=KINDS[line["kind"]], jaccard=line["jac"])
        for line in map(json.loads, (NEAR_DUPLICATES / TRUTH).read_text().splitlines())
    )
    ids = tuple(map(str, table["id"].to_pylist()))
    return _write(folder, "near_duplicates", Planted(ids, tuple(table["text"].to_pylist()), truth))


def part(corpus: Corpus, folder: Path, documents: int) -> Corpus:
    """The first documents of a corpus, without the truth."""
    return _chosen(corpus, folder, list(read_texts(corpus.folder).items())[:documents])


def duplicates(corpus: Corpus, folder: Path, pairs: int) -> Corpus:
    """Some pairs of duplicates, of each kind, so that a tool does with them all that it does."""
    truth = corpus.truth()
    some = [copy for kind in KINDS.values() for copy in truth if copy.kind == kind and copy.jaccard >= 0.8]
    chosen = some[:: max(1, len(some) // pairs)]
    wanted = {id for copy in chosen for id in (copy.id, copy.original)}
    return _chosen(corpus, folder, list(read_texts(corpus.folder, wanted).items()))


def _chosen(corpus: Corpus, folder: Path, documents: list[tuple[str, str]]) -> Corpus:
    ids, texts = zip(*documents, strict=True)
    return _write(folder, corpus.name, Planted(ids, texts, ()))


def _write(folder: Path, name: str, planted: Planted) -> Corpus:
    write(planted, folder)
    num_bytes = sum(len(text.encode()) for text in planted.texts)
    return Corpus(name=name, folder=folder, documents=len(planted.ids), num_bytes=num_bytes)
