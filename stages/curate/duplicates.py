"""Exact and near duplicates among all documents, known and own; who survives is decided by rank
(`data.dedup.ranking`)."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.dedup.banding import NearDuplicateSettings
from data.dedup.duplicates import exact_duplicates, near_duplicates
from data.dedup.ranking import rank
from data.dedup.signatures import FINGERPRINT, column_values, open_signatures
from stages.curate.corpus import Corpus, ids_at
from stages.curate.losses import KNOWN_TEXT
from stages.curate.settle import EXACT, NEAR
from stages.curate.shard import column
from stages.curate.work import read_arrow, whole_file, write_arrow

TRAINING_TEXT, HELDOUT_TEXT = "training text", "held-out text"

Run = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]
Found = tuple[dict[str, np.ndarray], dict[str, Any]]


def ranks(corpus: Corpus) -> np.ndarray:
    """int64[known and own documents]: 0 for the one that survives against all others, with the split as it is."""
    shards, num_known = corpus.document_shards(), corpus.num_known
    texts, first = [shard.texts for shard in shards], np.cumsum([0, *(shard.num_documents for shard in shards)])
    nothing = np.zeros(num_known, np.int64)
    return rank(
        known=np.arange(num_known + corpus.num_documents) < num_known,
        heldout=np.concatenate([nothing.astype(bool), corpus.heldout]),
        quality=np.concatenate([nothing, corpus.quality]),
        num_bytes=np.concatenate([nothing, corpus.num_bytes]),
        fingerprints=np.concatenate(
            [column_values(open_signatures(shard), FINGERPRINT, np.uint64) for shard in shards]
        ),
        ids=lambda rows: ids_at(texts, first, rows),
    )


def remove_exact(corpus: Corpus, ranked: np.ndarray, work: Path, run: Run) -> None:
    """Of texts that are equal but for white space, keep the first by rank."""

    def find(scratch: Path) -> Found:
        return {"survivor": exact_duplicates(corpus.document_shards(), ranked, scratch, run)}, {}

    arrays, _ = _once(work / "exact", find)
    _remove_in_favour(corpus, EXACT, arrays["survivor"], np.ones(len(ranked)))


def remove_near(
    corpus: Corpus, ranked: np.ndarray, settings: NearDuplicateSettings, work: Path, run: Run
) -> dict[str, Any]:
    """Of similar texts, keep the first by rank. Returns the facts of the search."""

    def find(scratch: Path) -> Found:
        alive = np.concatenate([np.ones(corpus.num_known, bool), corpus.alive])
        found = near_duplicates(
            corpus.document_shards(), alive, ranked, settings, scratch, run, num_known=corpus.num_known
        )
        counts = {
            "too_short_for_an_ngram": found.num_too_short,
            "candidates": found.num_candidates,
            "compared_exactly": found.num_compared,
        }
        return {"survivor": found.survivor, "similarity": found.similarity}, counts

    arrays, counts = _once(work / "near", find)
    _remove_in_favour(corpus, NEAR, arrays["survivor"], arrays["similarity"])
    return counts | {
        "expected_recall_at_threshold": round(settings.expected_recall, 6),
        "bands": settings.bands,
        "rows": settings.rows,
    }


def _once(name: Path, find: Callable[[Path], Found]) -> Found:
    """Arrays of one length and counts, which an earlier attempt found or which are found now, with a folder for
    scratch."""
    path, scratch = name.with_suffix(".arrow"), name.with_suffix(".scratch")
    if not path.exists():
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        arrays, counts = find(scratch)
        with whole_file(path) as temporary:
            write_arrow(temporary, pa.table(arrays).replace_schema_metadata({"counts": json.dumps(counts)}))
    shutil.rmtree(scratch, ignore_errors=True)
    table = read_arrow(path)
    counts = json.loads(table.schema.metadata[b"counts"])
    return {key: np.asarray(column(table, key)) for key in table.column_names}, counts


def _remove_in_favour(corpus: Corpus, what: str, survivor: np.ndarray, score: np.ndarray) -> None:
    """Drop the own documents that have a survivor (a place in the directory, or -1), unless they were planted."""
    num_known = corpus.num_known
    own, own_score = survivor[num_known:], score[num_known:]
    goes = (own >= 0) & ~corpus.planted
    of_known = goes & (own < num_known)
    of_heldout = np.zeros(len(own), bool)
    of_own = goes & ~of_known
    of_heldout[of_own] = corpus.heldout[own[of_own] - num_known]
    for text, chosen in (
        (KNOWN_TEXT, of_known),
        (HELDOUT_TEXT, of_heldout),
        (TRAINING_TEXT, of_own & ~of_heldout),
    ):
        rows = np.flatnonzero(chosen)
        corpus.drop(what + text, rows, own_score[rows], own[rows])
