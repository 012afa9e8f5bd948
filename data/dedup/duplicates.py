"""Removal of exact and near duplicates among shards of documents.

Their rank decides who survives (`data.dedup.ranking`).

*Exact* duplicates are equal once runs of white space are one space. Equal fingerprints are only candidates: the texts
themselves are compared.

*Near* duplicates are found by MinHash over word n-grams (Broder 1997) with banding and are then verified: documents
are taken by rank, and one is removed only in favour of a kept document whose exact Jaccard similarity with it is at
least the threshold. There is no transitive closure, so a chain of similar texts does not collapse. A text with fewer
than n words has no n-gram and takes no part.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.dedup.band_join import Group, Run, join, load, make_groups, pick, save
from data.dedup.banding import NearDuplicateSettings
from data.dedup.candidates import NO_NGRAMS, GatherCandidates, read_candidates
from data.dedup.signatures import BANDS, FINGERPRINT, NUM_NGRAMS, SKETCH, DocumentShard, open_signatures

MOST_COMPARED = 32
MOST_MEMBERS = 256
RANKS = "ranks"


@dataclass(frozen=True, kw_only=True)
class NearDuplicates:
    """survivor: int64[n], the row in whose favour a row is removed, or -1. similarity: float64[n], exact Jaccard with
    it, or 0. num_candidates: documents that share a band with another. num_compared: pairs compared exactly."""

    survivor: np.ndarray
    similarity: np.ndarray
    num_too_short: int
    num_candidates: int
    num_compared: int


def exact_duplicates(shards: Sequence[DocumentShard], ranks: np.ndarray, scratch: Path, run: Run) -> np.ndarray:
    """int64[n]: for each row the row whose text it repeats, or -1 if it is the first by rank.

    Rows are numbered through the shards; ranks: int64[n]. `run` maps a function over items and returns the results in
    their order; the result does not depend on it. `scratch` is a folder for files, which all workers see.
    """
    assert ranks.dtype == np.int64, ranks.dtype
    folder = _empty(scratch / "exact")
    groups = make_groups(shards)
    save(folder / RANKS, ranks)
    everything = np.ones(len(ranks), bool)
    num_tasks = join(groups, everything, column=FINGERPRINT, num_bands=1, needs_ngrams=False, folder=folder, run=run)
    run(GatherCandidates(folder=folder, ngram_words=NO_NGRAMS), groups)
    run(AssignExact(folder=folder, num_groups=len(groups)), range(num_tasks))
    survivor, _ = _collect(folder, num_tasks, len(ranks))
    shutil.rmtree(folder)
    return survivor


def near_duplicates(
    shards: Sequence[DocumentShard],
    alive: np.ndarray,
    ranks: np.ndarray,
    settings: NearDuplicateSettings,
    scratch: Path,
    run: Run,
    *,
    num_known: int = 0,
) -> NearDuplicates:
    """Which rows to remove as near duplicates, and in whose favour.

    alive: bool[n], the rows that take part. num_known: so many rows, the first by rank, are kept whatever they
    resemble. The other arguments are those of `exact_duplicates`. A text is compared with at most MOST_COMPARED kept
    ones, those that agree with it in most MinHash values; of the kept ones that share a band, the first MOST_MEMBERS
    by rank are looked at.
    """
    assert alive.dtype == bool and ranks.dtype == np.int64, (alive.dtype, ranks.dtype)
    folder = _empty(scratch / "near")
    groups = make_groups(shards)
    save(folder / RANKS, ranks)
    num_tasks = join(groups, alive, column=BANDS, num_bands=settings.bands, needs_ngrams=True, folder=folder, run=run)
    gathered = run(GatherCandidates(folder=folder, ngram_words=settings.ngram_words), groups)
    assign = AssignNear(folder=folder, num_groups=len(groups), settings=settings, num_known=num_known)
    compared = run(assign, range(num_tasks))
    survivor, similarity = _collect(folder, num_tasks, len(ranks))
    shutil.rmtree(folder)
    return NearDuplicates(
        survivor=survivor,
        similarity=similarity,
        num_too_short=_num_without_ngrams(groups, alive),
        num_candidates=sum(gathered),
        num_compared=sum(compared),
    )


def near_clusters(
    shards: Sequence[DocumentShard], settings: NearDuplicateSettings, scratch: Path, run: Run
) -> np.ndarray:
    """int64[n]: the first row of the documents that a chain of similar pairs, each found and compared exactly, leads
    to.

    It shows what the search finds, to be measured against a truth. Removal does not follow chains: of a chain of
    similar texts, several may survive. The arguments are those of `near_duplicates`.
    """
    folder = _empty(scratch / "clusters")
    groups = make_groups(shards)
    n = sum(shard.num_documents for shard in shards)
    alive = np.ones(n, bool)
    num_tasks = join(groups, alive, column=BANDS, num_bands=settings.bands, needs_ngrams=True, folder=folder, run=run)
    run(GatherCandidates(folder=folder, ngram_words=settings.ngram_words), groups)
    run(UniteSimilar(folder=folder, num_groups=len(groups), settings=settings), range(num_tasks))
    cluster = np.arange(n)
    for task in range(num_tasks):
        rows, first = load(folder / f"clusters-{task}", np.int64).reshape(2, -1)
        cluster[rows] = first
    shutil.rmtree(folder)
    return cluster


@dataclass(frozen=True, kw_only=True)
class AssignExact:
    """Writes which documents of a task repeat another one."""

    folder: Path
    num_groups: int

    def __call__(self, task: int) -> None:
        from data.dedup.dedup_kernels import assign_exact

        found = read_candidates(self.folder, self.num_groups, task, {FINGERPRINT: np.uint64})
        prints = found.columns[FINGERPRINT]
        found = found.sorted_by(pick(self.folder / RANKS, np.int64, found.rows), prints[:, 1], prints[:, 0])
        survivor = np.empty(len(found.rows), np.int64)
        assign_exact(found.columns[FINGERPRINT], found.addresses, found.counts, survivor)
        _write_removed(self.folder, task, found.rows, survivor, np.ones(len(survivor)))


@dataclass(frozen=True, kw_only=True)
class AssignNear:
    """Writes which documents of a task resemble a kept one; returns the number of pairs compared exactly."""

    folder: Path
    num_groups: int
    settings: NearDuplicateSettings
    num_known: int

    def __call__(self, task: int) -> int:
        from data.dedup.dedup_kernels import assign_near

        found = read_candidates(self.folder, self.num_groups, task, {BANDS: np.uint64, SKETCH: np.uint8})
        ranks = pick(self.folder / RANKS, np.int64, found.rows)
        found = found.sorted_by(ranks)
        survivor, similarity = np.empty(len(found.rows), np.int64), np.empty(len(found.rows))
        compared = assign_near(
            *shared_buckets(found.columns[BANDS]),
            found.columns[SKETCH],
            found.addresses,
            found.counts,
            self.settings.threshold,
            self.settings.least_agreement,
            MOST_COMPARED,
            MOST_MEMBERS,
            int((ranks < self.num_known).sum()),
            survivor,
            similarity,
        )
        _write_removed(self.folder, task, found.rows, survivor, similarity)
        return int(compared)


@dataclass(frozen=True, kw_only=True)
class UniteSimilar:
    """Writes which documents of a task belong together: (row, first row of its cluster)."""

    folder: Path
    num_groups: int
    settings: NearDuplicateSettings

    def __call__(self, task: int) -> None:
        from data.dedup.dedup_kernels import unite_similar

        found = read_candidates(self.folder, self.num_groups, task, {BANDS: np.uint64, SKETCH: np.uint8})
        found = found.sorted_by(found.rows)
        parent = np.empty(len(found.rows), np.int64)
        unite_similar(
            *shared_buckets(found.columns[BANDS]),
            found.columns[SKETCH],
            found.addresses,
            found.counts,
            self.settings.threshold,
            self.settings.least_agreement,
            parent,
        )
        save(self.folder / f"clusters-{task}", np.stack([found.rows, found.rows[parent]]))


def shared_buckets(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Buckets that hold more than one document: (int64[n, bands], -1 for none; offsets int64[num_buckets + 1]).

    keys: uint64[n, bands]."""
    from data.dedup.join_kernels import number_shared_keys

    buckets, sizes = np.empty(keys.shape, np.int64), np.zeros(keys.size // 2 + 1, np.int64)
    num_buckets = number_shared_keys(keys, buckets, sizes[1:])
    return buckets, np.cumsum(sizes[: num_buckets + 1])


def _write_removed(folder: Path, task: int, rows: np.ndarray, survivor: np.ndarray, similarity: np.ndarray) -> None:
    removed = survivor >= 0
    bits = similarity[removed].view(np.int64)
    save(folder / f"removed-{task}", np.stack([rows[removed], rows[survivor[removed]], bits]))


def _collect(folder: Path, num_tasks: int, num_documents: int) -> tuple[np.ndarray, np.ndarray]:
    """(survivor, similarity) of all documents."""
    survivor, similarity = np.full(num_documents, -1, np.int64), np.zeros(num_documents)
    for task in range(num_tasks):
        rows, kept, bits = load(folder / f"removed-{task}", np.int64).reshape(3, -1)
        survivor[rows], similarity[rows] = kept, bits.view(np.float64)
    return survivor, similarity


def _num_without_ngrams(groups: Sequence[Group], alive: np.ndarray) -> int:
    first = total = 0
    for shard in (shard for group in groups for shard in group.shards):
        counts = open_signatures(shard).column(NUM_NGRAMS).to_numpy()
        total += int(((counts == 0) & alive[first : first + shard.num_documents]).sum())
        first += shard.num_documents
    return total


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
