"""A curated corpus as its readers find it: one Parquet file for each domain, in train/ and in heldout/."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

TRAIN, HELDOUT = SPLITS = ("train", "heldout")


def domain_path(corpus: Path, split: str, domain: str) -> Path:
    """Where the documents of a domain are: columns id, text, domain, group, source."""
    return corpus / split / f"{domain}.parquet"


def domain_paths(corpus: Path, split: str) -> dict[str, Path]:
    """Domain -> its file, in the order of the names."""
    return {path.stem: path for path in sorted((corpus / split).glob("*.parquet"))}


def read_domains(corpus: Path, split: str, columns: tuple[str, ...]) -> "dict[str, pa.Table]":
    """Domain -> these columns of all its documents."""
    import pyarrow.parquet as pq

    return {domain: pq.read_table(path, columns=list(columns)) for domain, path in domain_paths(corpus, split).items()}


def heldout_texts(corpus: Path) -> dict[str, list[tuple[str, str]]]:
    """Domain -> (id, text) of every held-out document."""
    return {
        domain: list(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
        for domain, table in read_domains(corpus, HELDOUT, ("id", "text")).items()
    }
