"""A model's file is the same bytes for the same content, and whatever else a path holds is refused."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data.errors import InputError
from data.text.model_file import ModelKind, read_model, write_model

KIND = ModelKind(name="test model", version=3, arrays={"a": "float32", "b": "uint64"}, command="make one")
ARRAYS = {"a": np.arange(5, dtype=np.float32), "b": np.array([2**64 - 1, 0], np.uint64)}


def written(path: Path) -> Path:
    write_model(path, KIND, {"bias": 0.5, "report": {"auc": 1.0}}, ARRAYS)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    settings, arrays = read_model(written(tmp_path / "a.model"), KIND)
    assert settings == {"bias": 0.5, "report": {"auc": 1.0}}
    assert all((arrays[name] == ARRAYS[name]).all() and arrays[name].dtype == ARRAYS[name].dtype for name in ARRAYS)
    assert (tmp_path / "a.model").read_bytes() == written(tmp_path / "b.model").read_bytes()


def test_no_changed_or_cut_file_is_taken_for_the_model(tmp_path: Path) -> None:
    content = written(tmp_path / "a.model").read_bytes()
    settings, arrays = read_model(tmp_path / "a.model", KIND)
    path = tmp_path / "damaged.model"
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            found, changed = read_model(path, KIND)
        except InputError as error:
            assert "make one" in str(error)
            continue
        # A byte of padding.
        assert found == settings and all((changed[name] == arrays[name]).all() for name in arrays)
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match="make one"):
            read_model(path, KIND)


def test_other_kinds_versions_and_files_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.model")
    for other in (
        ModelKind(name="other model", version=3, arrays=KIND.arrays, command="make another"),
        ModelKind(name="test model", version=4, arrays=KIND.arrays, command="make another"),
        ModelKind(name="test model", version=3, arrays={"a": "float32"}, command="make another"),
    ):
        with pytest.raises(InputError, match="make another"):
            read_model(path, other)
    with pytest.raises(InputError, match="there is no such file; .*make one"):
        read_model(tmp_path / "missing", KIND)
    with pytest.raises(InputError, match="there is no such file"):
        read_model(tmp_path, KIND)
    with pa.ipc.new_stream(tmp_path / "table", pa.schema([("x", pa.int8())])):
        pass
    with pytest.raises(InputError, match="something else"):
        read_model(tmp_path / "table", KIND)
    with pytest.raises(InputError, match="cannot be written"):
        written(tmp_path / "no" / "folder")
