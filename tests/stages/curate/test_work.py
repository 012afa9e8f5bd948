"""Files of the work directory are whole or not there."""

from pathlib import Path

import pyarrow as pa
import pytest

from stages.curate.work import read_arrow, whole_file, whole_folder, write_arrow


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_once_it_is_filled(tmp_path: Path):
    with whole_folder(tmp_path / "made") as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "made").exists() and all(name.startswith(".") for name in names(tmp_path))
    assert names(tmp_path) == ["made"] and (tmp_path / "made" / "a").read_text() == "1"


@pytest.mark.parametrize("whole", [whole_folder, whole_file])
def test_an_error_leaves_nothing(tmp_path: Path, whole):
    with pytest.raises(RuntimeError, match="half-way"), whole(tmp_path / "made") as made:
        (made / "a" if made.is_dir() else made).write_text("1")
        raise RuntimeError("half-way")
    assert names(tmp_path) == []


def test_of_two_attempts_at_one_folder_the_first_stays_and_no_trace_of_the_other(tmp_path: Path):
    with whole_folder(tmp_path / "made") as slow:
        (slow / "a").write_text("slow")
        with whole_folder(tmp_path / "made") as fast:
            (fast / "a").write_text("fast")
    assert names(tmp_path) == ["made"] and (tmp_path / "made" / "a").read_text() == "fast"


def test_a_file_replaces_another_one(tmp_path: Path):
    for text in ("one", "two"):
        with whole_file(tmp_path / "made") as path:
            path.write_text(text)
    assert names(tmp_path) == ["made"] and (tmp_path / "made").read_text() == "two"


def test_a_table_comes_back_as_it_was_written(tmp_path: Path):
    for rows in ([], [1, 2, 3]):
        table = pa.table({"a": pa.array(rows, pa.int64())})
        write_arrow(tmp_path / "t", table)
        assert read_arrow(tmp_path / "t").equals(table)
