"""How well a tool found the planted duplicates, and how much it took for duplicates without reason.

A clustering says which documents are similar. Its recall is the share of planted copies that stand in one cluster with
their original. Its precision: if one document of each cluster were kept, the share of the others that have a true
Jaccard similarity of word 5-grams of at least x to a member of their cluster that stands before them in the order of
the documents. It is taken from a seeded sample of clusters.

Removal may keep several documents of a cluster, those that are not similar to each other. `recall` is of what is kept:
the share of planted copies of which not both the copy and the original are left.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from tests.benchmarks.near_duplicate_text import EXACT, NEAR, SPACES, Copy, jaccard, shingles

HIGH, LOW = 0.8, 0.7
SAMPLED_DOCUMENTS = 4000
MOST_OF_A_CLUSTER = 50  # members of one cluster that are compared: each with all that stand before it


def recall(kept: Iterable[str], truth: Iterable[Copy], least: float) -> float:
    """Of copies of any kind with a similarity of at least `least`. A rate of nothing is 1."""
    left = set(kept)
    return _share(not (copy.id in left and copy.original in left) for copy in truth if copy.jaccard >= least)


@dataclass(frozen=True, kw_only=True)
class Score:
    """Of a clustering. recall_high: of copies of any kind with a similarity of at least HIGH; recall_low: of near
    duplicates from LOW to HIGH. precision: at similarities of HIGH and LOW. removed: documents but
    one of each cluster. largest: documents of the largest one."""

    recall_high: float
    recall_low: float
    recall_exact: float
    recall_spaces: float
    precision_high: float
    precision_low: float
    removed: int
    largest: int


def score(
    clusters: Mapping[str, Hashable], truth: Iterable[Copy], texts: Callable[[set[str]], Mapping[str, str]]
) -> Score:
    """clusters: of every document, in the order of the documents. texts: gives the texts of some ids. A rate of nothing
    is 1."""
    found = [(copy, clusters[copy.id] == clusters[copy.original]) for copy in truth]
    members: dict[Hashable, list[str]] = defaultdict(list)
    for document, cluster in clusters.items():
        members[cluster].append(document)
    groups = [group for group in members.values() if len(group) > 1]
    best = _similarities(groups, texts)
    return Score(
        recall_high=_share(same for copy, same in found if copy.jaccard >= HIGH),
        recall_low=_share(same for copy, same in found if copy.kind == NEAR and LOW <= copy.jaccard < HIGH),
        recall_exact=_share(same for copy, same in found if copy.kind == EXACT),
        recall_spaces=_share(same for copy, same in found if copy.kind == SPACES),
        precision_high=_share(value >= HIGH for value in best),
        precision_low=_share(value >= LOW for value in best),
        removed=sum(len(group) - 1 for group in groups),
        largest=max(map(len, groups), default=1),
    )


def _similarities(groups: list[list[str]], texts: Callable[[set[str]], Mapping[str, str]]) -> list[float]:
    """Of members of a sample of clusters, but for the first of each, to the most similar one before them."""
    drawn = list(groups)
    random.Random(0).shuffle(drawn)
    sample: list[list[str]] = []
    while drawn and sum(map(len, sample)) < SAMPLED_DOCUMENTS:
        sample.append(drawn.pop()[:MOST_OF_A_CLUSTER])
    wanted = texts({document for group in sample for document in group})
    grams = {document: shingles(text) for document, text in wanted.items()}
    return [
        max(jaccard(grams[document], grams[before]) for before in group[:place])
        for group in sample
        for place, document in enumerate(group)
        if place
    ]


def _share(hits: Iterable[bool]) -> float:
    values = list(hits)
    return sum(values) / len(values) if values else 1.0
