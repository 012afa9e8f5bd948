"""Corpora that were curated before: what repeats one of their documents is not kept again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.dedup.banding import NearDuplicateSettings
from data.dedup.signatures import DocumentShard, signature_schema
from data.errors import InputError
from stages import manifest
from stages.curate.artifact import SPLITS, domain_paths, index_path
from stages.curate.work import read_arrow


@dataclass(frozen=True, kw_only=True)
class KnownShard:
    """One file of a known corpus."""

    corpus: Path
    documents: DocumentShard

    @property
    def num_documents(self) -> int:
        return self.documents.num_documents


def identities(corpora: Sequence[str]) -> list[str]:
    """The digest of each corpus, in the order given. Raises InputError for a folder that is none."""
    found = []
    for folder in corpora:
        made = manifest.read(Path(folder).expanduser())
        if made is None or made.stage != "curate":
            raise InputError(
                f"curate.known_corpora: {folder} is no finished corpus; name a folder artifacts/curate/LABEL-KEY"
            )
        found.append(made.digest)
    return found


def known_shards(corpora: Sequence[str], settings: NearDuplicateSettings) -> list[KnownShard]:
    """Every file of the corpora with its index. Raises InputError if one was indexed under other settings."""
    found = []
    for folder in (Path(corpus).expanduser() for corpus in corpora):
        for split in SPLITS:
            for paths in domain_paths(folder, split).values():
                for path in paths:
                    index = index_path(folder, split, path)
                    _require_settings(index, folder, settings)
                    documents = DocumentShard(
                        texts=path, signatures=index, num_documents=pq.read_metadata(path).num_rows
                    )
                    found.append(KnownShard(corpus=folder, documents=documents))
    return found


def _require_settings(index: Path, corpus: Path, settings: NearDuplicateSettings) -> None:
    if not index.exists():
        raise InputError(f"curate.known_corpora: {corpus} has no {index.relative_to(corpus)}; curate it again")
    wanted, found = signature_schema(settings).metadata, read_arrow(index).schema.metadata or {}
    if wanted != found:
        differs = ", ".join(
            f"{name.decode()} {found.get(name, b'?').decode()}, not {value.decode()}"
            for name, value in wanted.items()
            if found.get(name) != value
        )
        raise InputError(
            f"curate.known_corpora: {corpus} was made with other settings for near duplicates ({differs}); "
            "set curate.near_threshold, near_ngram_words and near_recall as there, or curate it again"
        )


def id_keys(shards: Sequence[KnownShard]) -> np.ndarray:
    """uint64: keys of all names of documents in known corpora."""
    from data.text.keys import hash_keys

    keys = [
        hash_keys(pq.read_table(shard.documents.texts, columns=["id"]).column("id").combine_chunks().cast(pa.string()))
        for shard in shards
    ]
    return np.concatenate([np.zeros(0, np.uint64), *keys])


def heldout_files(corpora: Sequence[str]) -> list[Path]:
    """The files of held-out text of the corpora."""
    return [
        path
        for corpus in corpora
        for paths in domain_paths(Path(corpus).expanduser(), "heldout").values()
        for path in paths
    ]
