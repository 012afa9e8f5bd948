"""Ours: the curate stage's own steps from Parquet to Parquet: read, exact duplicates, near duplicates, write.
Languages, personal data, quality, held-out text and decontamination are left out, as the others do not have them.

LONGHAUL_WORKERS says on how many threads. With LONGHAUL_CLUSTERS=1 the documents that the search finds to be similar
are told as clusters, apart from which of them are removed; that is not counted.
"""

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from data.dedup.band_join import in_turn
from data.dedup.duplicates import near_clusters
from stages.curate.config import CurateConfig
from stages.curate.corpus import ids_of
from stages.curate.pipeline import Curation
from stages.executor import open_executor
from stages.journal import Journal
from tests.benchmarks.peers.curation.measured import kept_ids, main

WORKERS = int(os.environ.get("LONGHAUL_WORKERS", "1"))
CLUSTERS = os.environ.get("LONGHAUL_CLUSTERS") == "1"


class OurDedup:
    def prepare(self, folder: Path) -> CurateConfig:
        source = {"kind": "parquet", "domain": "text", "path": f"{folder}/*.parquet", "id_field": "id"}
        return CurateConfig.model_validate(
            {
                "sources": [source | {"quality": "none"}],
                "identify_languages": False,
                "pii": [],
                "most_lost_share": 1.0,
                "workers": WORKERS,
            }
        )

    def run(self, prepared: CurateConfig, out: Path, scratch: Path) -> Curation:
        journal = Journal(scratch / "events.jsonl", stage="curate")
        with open_executor("threads", workers=prepared.workers) as executor:
            curation = Curation(prepared, out, journal, executor)
            curation.read()
            curation.remove_exact_duplicates()
            curation.remove_near_duplicates()
            curation.settle()
            curation.write()
        journal.close()
        return curation

    def found(self, prepared: CurateConfig, result: Curation, out: Path) -> dict[str, Any]:
        dropped = pq.read_table(out / "dropped.parquet", columns=["id", "survivor"])
        survivors = dict(zip(dropped["id"].to_pylist(), dropped["survivor"].to_pylist(), strict=True))
        settings = prepared.near_duplicates()
        return {
            "kept": kept_ids(out / "train"),
            "survivors": survivors,
            "clusters": similar(result) if CLUSTERS else {},
            "bands": settings.bands,
            "rows": settings.rows,
            "expected_recall": settings.expected_recall,
        }


def similar(curation: Curation) -> dict[str, str]:
    """Document -> the first one that a chain of pairs, each similar enough, leads to."""
    shards = curation.corpus.document_shards()
    ids = [id for shard in shards for id in ids_of(shard.texts).to_pylist()]
    first = near_clusters(shards, curation.config.near_duplicates(), curation.work, in_turn)
    return dict(zip(ids, (ids[row] for row in first.tolist()), strict=True))


if __name__ == "__main__":
    main(OurDedup())
