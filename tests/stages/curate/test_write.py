"""How the kept documents are divided among files."""

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.curate import write
from stages.curate.corpus import Corpus
from stages.curate.write import evenly, plan_files
from tests.stages.curate.shards import shard


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 300))
@settings(max_examples=200, deadline=None)
def test_runs_follow_one_another_and_none_is_larger_than_the_others_by_more_than_an_element(sizes, most):
    runs = [sizes[chosen] for chosen in evenly(sizes, most)]
    assert [size for run in runs for size in run] == sizes and all(runs)
    share = sum(sizes) / max(1, -(-sum(sizes) // most))
    assert all(sum(run) <= share + max(run) for run in runs)
    assert all(sum(run) > share - max(sizes) - 1 for run in runs) or max(sizes) > share


def test_files_hold_the_kept_documents_of_their_side_and_domain_in_order(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(write, "FILE_BYTES", (100, 1000))
    shards = [
        shard(tmp_path / f"{number:06}", [f"d{number}-{row}" for row in range(4)], ["x" * 20] * 4, domain)
        for number, domain in enumerate(["web", "web", "book", "web", "book", "web"])
    ]
    corpus = Corpus(shards, [])
    corpus.heldout[[0, 5]] = True
    corpus.drop("short", np.array([1, 16, 17, 18, 19]), np.zeros(5), np.full(5, -1))
    files = list(plan_files(corpus))
    assert [(file.split, file.domain, file.number, file.num_documents) for file in files] == [
        ("train", "book", 0, 4),
        ("train", "web", 0, 5),
        ("train", "web", 1, 4),
        ("train", "web", 2, 4),
        ("heldout", "web", 0, 2),
    ]
    kept = {"train": [], "heldout": []}
    for file in files:
        for piece in file.pieces:
            assert piece.shard.domain == file.domain
            kept[file.split] += (piece.place + piece.rows).tolist()
    assert sorted(kept["train"] + kept["heldout"]) == np.flatnonzero(corpus.alive).tolist()
    assert kept["heldout"] == [0, 5]
