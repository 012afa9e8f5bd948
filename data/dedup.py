"""Removal of exact and near duplicates.

*Rank* decides who survives: held-out text before training text, then the longer one, then the smaller fingerprint of
the text, then the smaller id. So the surviving texts depend neither on the order of the documents nor on the names of
their files.

*Exact* duplicates are equal once runs of white space are one space. Equal fingerprints are only candidates: the texts
themselves are compared.

*Near* duplicates are found by MinHash over word n-grams (Broder 1997) with banding (Leskovec, Rajaraman, Ullman, Mining
of Massive Datasets, ch. 3.4) and are then verified: documents are taken by rank, and one is removed only in favour of a
kept document whose exact Jaccard similarity with it is at least the threshold. There is no transitive closure, so a
chain of similar texts does not collapse. A text with fewer than n words has no n-gram and takes no part.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.banding import NearDuplicateSettings
from data.tables import text_buffers

MOST_COMPARED = 32
HASH_SEED = 0x5EED

Item = TypeVar("Item")
Result = TypeVar("Result")
Texts = Sequence[pa.LargeStringArray]


@dataclass(frozen=True, kw_only=True)
class NearDuplicates:
    """survivor: int64[n], the row in whose favour a row is removed, or -1. similarity: float64[n], exact Jaccard with
    it, or 0."""

    survivor: np.ndarray
    similarity: np.ndarray
    num_too_short: int
    num_candidates: int
    num_compared: int


def in_turn(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The plainest way to map over shards."""
    return [function(item) for item in items]


def fingerprints(texts: pa.LargeStringArray) -> np.ndarray:
    """uint64[n, 2] of texts with runs of white space as one space."""
    from data import dedup_kernels

    out = np.empty((len(texts), 2), np.uint64)
    dedup_kernels.fingerprints(*text_buffers(texts), out)
    return out


def rank(
    *, num_bytes: np.ndarray, prints: np.ndarray, ids: pa.ChunkedArray | pa.StringArray, is_training: np.ndarray
) -> np.ndarray:
    """int64[n]: 0 for the document that survives against all others."""
    by_id = _positions(np.asarray(pc.sort_indices(ids)))
    return _positions(np.lexsort((by_id, prints[:, 1], prints[:, 0], -num_bytes.astype(np.int64), is_training)))


def exact_survivors(shards: Texts, prints: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """int64[n]: for each row the row whose text it repeats, or -1 if it is the first by rank."""
    from data import dedup_kernels

    survivor = np.full(len(ranks), -1, np.int64)
    order = np.lexsort((ranks, prints[:, 1], prints[:, 0]))
    same = np.zeros(len(order), bool)
    same[1:] = (prints[order[1:]] == prints[order[:-1]]).all(axis=1)
    first_row, buffers = _rows_by_shard(shards), [text_buffers(texts) for texts in shards]

    def place(row: int) -> tuple[np.ndarray, int, int]:
        shard = int(np.searchsorted(first_row, row, side="right")) - 1
        values, offsets = buffers[shard]
        local = row - first_row[shard]
        return values, int(offsets[local]), int(offsets[local + 1])

    kept = -1
    for row, repeats in zip(order.tolist(), same.tolist(), strict=True):
        if repeats and dedup_kernels.equal_but_for_space(*place(row), *place(kept)):
            survivor[row] = kept
        else:
            kept = row
    return survivor


def near_duplicates(
    shards: Texts, ranks: np.ndarray, settings: NearDuplicateSettings, run: Callable = in_turn
) -> NearDuplicates:
    """Which rows to remove as near duplicates, and in whose favour. `run` maps a function over shards; the result does
    not depend on it."""
    from data import dedup_kernels

    factors, shifts = hash_constants(settings.bands * settings.rows)

    def sign(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        signatures = np.empty((len(texts), len(factors)), np.uint32)
        num_grams = np.empty(len(texts), np.int64)
        dedup_kernels.minhash(*text_buffers(texts), settings.ngram_words, factors, shifts, signatures, num_grams)
        keys = np.empty((settings.bands, len(texts)), np.uint64)
        dedup_kernels.band_keys(signatures, settings.bands, settings.rows, keys)
        return signatures, num_grams, keys

    signed = run(sign, shards)
    num_grams = np.concatenate([part[1] for part in signed]) if signed else np.zeros(0, np.int64)
    order = np.argsort(ranks, kind="stable")
    order = order[num_grams[order] > 0]
    keys = (
        np.concatenate([part[2] for part in signed], axis=1)[:, order]
        if signed
        else np.zeros((settings.bands, 0), np.uint64)
    )
    buckets, bucket_offsets = _shared_buckets(keys)
    shares = (buckets >= 0).any(axis=1)
    order, buckets = order[shares], buckets[shares]
    wanted = np.zeros(len(ranks), bool)
    wanted[order] = True

    def sets(shard: tuple[pa.LargeStringArray, int]) -> tuple[np.ndarray, np.ndarray]:
        texts, first = shard
        chosen = slice(first, first + len(texts))
        return dedup_kernels.gram_sets(
            *text_buffers(texts), wanted[chosen], settings.ngram_words, int(num_grams[chosen][wanted[chosen]].sum())
        )

    found = run(sets, list(zip(shards, _rows_by_shard(shards).tolist(), strict=True)))
    grams, gram_offsets = _in_order(found, order)
    signatures = (
        np.concatenate([part[0] for part in signed])[order] if signed else np.zeros((0, len(factors)), np.uint32)
    )
    local = np.full(len(order), -1, np.int64)
    similarity = np.zeros(len(order))
    compared = dedup_kernels.assign_survivors(
        buckets,
        bucket_offsets,
        signatures,
        grams,
        gram_offsets,
        settings.threshold,
        settings.least_agreement,
        MOST_COMPARED,
        local,
        similarity,
    )
    survivor, all_similarity = np.full(len(ranks), -1, np.int64), np.zeros(len(ranks))
    survivor[order[local >= 0]] = order[local[local >= 0]]
    all_similarity[order] = similarity
    return NearDuplicates(
        survivor=survivor,
        similarity=all_similarity,
        num_too_short=int((num_grams == 0).sum()),
        num_candidates=len(order),
        num_compared=int(compared),
    )


def hash_constants(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Odd factors and shifts of `count` hash functions, both uint32, from splitmix64, so that they never change with a
    library."""
    mask = (1 << 64) - 1
    state, drawn = HASH_SEED, []
    for _ in range(2 * count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        drawn.append((z ^ z >> 31) >> 32)
    return np.array(drawn[:count], np.uint32) | np.uint32(1), np.array(drawn[count:], np.uint32)


def _shared_buckets(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Buckets that hold more than one document: (int64[n, bands], -1 for none; offsets int64[num_buckets + 1])."""
    bands, n = keys.shape
    buckets = np.full((n, bands), -1, np.int64)
    sizes: list[np.ndarray] = []
    next_bucket = 0
    for b in range(bands):
        _, bucket, counts = np.unique(keys[b], return_inverse=True, return_counts=True)
        shared = counts > 1
        number = np.where(shared, np.cumsum(shared) - 1 + next_bucket, -1)
        buckets[:, b] = number[bucket]
        sizes.append(counts[shared])
        next_bucket += int(shared.sum())
    return buckets, np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)


def _in_order(found: list[tuple[np.ndarray, np.ndarray]], order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gram sets of the rows of `order`, one after another, and their offsets."""
    grams = np.concatenate([part[0] for part in found]) if found else np.zeros(0, np.uint64)
    counts = np.concatenate([part[1] for part in found]) if found else np.zeros(0, np.int64)
    begins = np.cumsum(counts) - counts
    offsets = np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64)
    parts = [grams[begins[row] : begins[row] + counts[row]] for row in order.tolist()]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64), offsets


def _rows_by_shard(shards: Texts) -> np.ndarray:
    """int64[len(shards)]: the first row of each shard."""
    lengths = np.array([len(texts) for texts in shards], np.int64)
    return np.cumsum(lengths) - lengths


def _positions(order: np.ndarray) -> np.ndarray:
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return positions
