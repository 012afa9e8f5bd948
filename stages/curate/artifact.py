"""A curated corpus as its readers find it.

train/<domain>-<nnnnn>.parquet, heldout/<domain>-<nnnnn>.parquet: the documents (id, text, domain, group, source,
language), in the order of the sources. The files of a domain are about equally large, and as large as FILE_BYTES
allows them to be where the whole corpus is to make FILES of them.
index/<split>/<domain>-<nnnnn>.arrow: the same documents' signatures, row by row, by which a later corpus is
compared with this one.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

TRAIN, HELDOUT = SPLITS = ("train", "heldout")
FILE_BYTES = (8 << 20, 64 << 20)  # of text, and a shard more at most
FILES = 16
NUMBER_DIGITS = 5


def file_path(corpus: Path, split: str, domain: str, number: int) -> Path:
    """Where a file of a domain's documents is."""
    return corpus / split / f"{domain}-{number:0{NUMBER_DIGITS}}.parquet"


def index_path(corpus: Path, split: str, documents: Path) -> Path:
    """Where the signatures of a file of documents are."""
    return corpus / "index" / split / f"{documents.stem}.arrow"


def domain_paths(corpus: Path, split: str) -> dict[str, list[Path]]:
    """Domain -> its files in order; domains in the order of their names."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in (corpus / split).glob("*.parquet"):
        domain, _, number = path.stem.rpartition("-")
        found.setdefault(domain, []).append((int(number), path))
    return {domain: [path for _, path in sorted(found[domain])] for domain in sorted(found)}


def read_domains(corpus: Path, split: str, columns: tuple[str, ...]) -> "dict[str, pa.Table]":
    """Domain -> these columns of all its documents, which are all in memory: for held-out text and short columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return {
        domain: pa.concat_tables([pq.read_table(path, columns=list(columns)) for path in paths])
        for domain, paths in domain_paths(corpus, split).items()
    }


def heldout_texts(corpus: Path) -> dict[str, list[tuple[str, str]]]:
    """Domain -> (id, text) of every held-out document."""
    return {
        domain: list(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
        for domain, table in read_domains(corpus, HELDOUT, ("id", "text")).items()
    }
