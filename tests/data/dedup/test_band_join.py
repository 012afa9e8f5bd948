"""Groups of shards, and tasks of documents that share keys."""

from pathlib import Path

import numpy as np
import pytest

from data.dedup import band_join
from data.dedup.band_join import components, load, make_groups, pick, save
from data.dedup.signatures import DocumentShard


def shard(num_documents: int) -> DocumentShard:
    return DocumentShard(texts=Path("texts"), signatures=Path("signatures"), num_documents=num_documents)


def test_groups_are_consecutive_shards_of_enough_documents(monkeypatch):
    monkeypatch.setattr(band_join, "GROUP_DOCUMENTS", (10, 1000))
    groups = make_groups([shard(size) for size in (4, 4, 4, 30, 1, 0, 2)])
    assert [[one.num_documents for one in group.shards] for group in groups] == [[4, 4, 4], [30], [1, 0, 2]]
    assert [(group.number, group.first_row, group.num_documents) for group in groups] == [
        (0, 0, 12), (1, 12, 30), (2, 42, 3)
    ]  # fmt: skip
    assert make_groups([]) == () and make_groups([shard(0)])[0].num_documents == 0


@pytest.mark.parametrize("enough", [1, 3, 100])
def test_documents_that_are_linked_are_in_one_task(tmp_path, monkeypatch, enough):
    monkeypatch.setattr(band_join, "TASK_DOCUMENTS", (enough, enough))
    rng = np.random.default_rng(enough)
    links = [rng.integers(0, 40, (6, 2)), np.zeros((0, 2), np.int64), np.array([[41, 43], [41, 44]])]
    for number, pairs in enumerate(links):
        save(tmp_path / f"{number}", pairs[pairs[:, 0] != pairs[:, 1]])
    task = components(50, [tmp_path / f"{number}" for number in range(3)])
    linked = np.unique(np.concatenate([load(tmp_path / f"{number}", np.int64) for number in range(3)]))
    assert np.nonzero(task >= 0)[0].tolist() == linked.tolist() and task.dtype == np.int32
    assert sorted(set(task[linked].tolist())) == list(range(task.max() + 1)), "a task without documents"
    for pairs in links:
        assert (task[pairs[:, 0]] == task[pairs[:, 1]])[pairs[:, 0] != pairs[:, 1]].all()
    assert (task.max() == 0) == (enough == 100)
    assert (components(5, []) == -1).all()


def test_a_file_is_whole_or_not_there(tmp_path):
    save(tmp_path / "values", np.arange(3))
    save(tmp_path / "values", np.arange(4))
    assert load(tmp_path / "values", np.int64).tolist() == [0, 1, 2, 3]
    assert load(tmp_path / "values", np.int64, 1, 3).tolist() == [1, 2]
    assert pick(tmp_path / "values", np.int64, np.array([3, 0])).tolist() == [3, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["values"]
