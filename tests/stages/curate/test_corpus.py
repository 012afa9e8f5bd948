"""Documents as numbers: each has one name, and a task elsewhere finds it by the number."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.text.keys import hash_keys
from stages.curate.corpus import Corpus, Directory, unique_names
from tests.stages.curate.shards import shard

NAMES = st.sampled_from(["a", "b", "a~2", "a~3", "b~2", "c"])


def corpus_of(folder: Path, shards: list[list[str]]) -> Corpus:
    return Corpus([shard(folder / f"{number:06}", ids) for number, ids in enumerate(shards)], [])


def all_names(directory: Directory, corpus: Corpus) -> list[str]:
    return directory.names(np.arange(corpus.num_documents)).to_pylist()


@given(st.lists(st.lists(NAMES, min_size=1, max_size=6), min_size=1, max_size=4), st.lists(NAMES, max_size=2))
@settings(max_examples=30, deadline=None)
def test_every_document_has_a_name_of_its_own_and_the_first_keeps_its(tmp_path_factory, shards, taken):
    folder = tmp_path_factory.mktemp("corpus")
    corpus, directory = corpus_of(folder / "shards", shards), Directory(folder=folder)
    renamed = unique_names(corpus, hash_keys(pa.array(taken, pa.string())))
    directory.write(corpus, renamed)
    names, before = all_names(directory, corpus), [name for ids in shards for name in ids]
    assert len(set(names)) == len(names) and not set(names) & set(taken)
    for row, (name, old) in enumerate(zip(names, before, strict=True)):
        is_first = old not in before[:row] and old not in taken
        assert (name == old) == is_first and (name == old or name.startswith(f"{old}~"))


def test_names_are_found_in_any_order_and_repeatedly(tmp_path):
    corpus, directory = corpus_of(tmp_path / "shards", [["x", "y"], ["y", "z"], ["y"]]), Directory(folder=tmp_path)
    directory.write(corpus, unique_names(corpus, np.zeros(0, np.uint64)))
    assert directory.names(np.array([4, 0, 2, 2, 3])).to_pylist() == ["y~3", "x", "y~2", "y~2", "z"]
    assert directory.names(np.zeros(0, np.int64)).to_pylist() == []
    directory.write(corpus, {1: "other"})
    assert all_names(directory, corpus) == ["x", "other", "y", "z", "y"], "an earlier answer was kept"


def test_a_name_that_ten_thousand_documents_share_is_told_apart_in_reading_order(tmp_path):
    corpus = corpus_of(tmp_path / "shards", [["same"] * 5000, ["same"] * 5000])
    renamed = unique_names(corpus, np.zeros(0, np.uint64))
    assert renamed == {row: f"same~{row + 1}" for row in range(1, 10_000)}


def test_a_document_has_one_fate(tmp_path):
    corpus = corpus_of(tmp_path / "shards", [["x", "y"], ["z"]])
    corpus.drop("repeated", np.array([1]), np.array([0.9]), np.array([2]))
    assert corpus.alive.tolist() == [True, False, True] and corpus.rows_of(1) == slice(2, 3)
    with pytest.raises(AssertionError, match="one fate"):
        corpus.drop("again", np.array([1]), np.array([0.9]), np.array([0]))
